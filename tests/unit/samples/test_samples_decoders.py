"""Decoders: audio, arrays, text, and functions of the user."""

import gc
import io
import struct
import sys
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from larder.config.shape import DecoderUse, decoder_uses, parse_decoder
from larder.errors import ObjectError
from larder.samples.decoders import Decoders, kind_of, read_header, resolved
from tests.support.errors import larder_error

SAMPLES = np.arange(-6, 6, dtype="<i2").reshape(6, 2)


def decode(text: str, data: bytes, ext: str = "x") -> dict[str, Any]:
    bound = Decoders((parse_decoder(ext, text),)).of(ext)
    return bound.decode(data, "a/b.x", "fix it")


def refused(text: str, data: bytes) -> str:
    """What is said of it."""
    with pytest.raises(ObjectError) as caught:
        decode(text, data)
    error = caught.value
    assert (error.code, error.where, error.hint) == ("sample.undecodable", "a/b.x", "fix it")
    return error.message


def riff(fmt: bytes, body: bytes, *, before: bytes = b"") -> bytes:
    chunks = b"WAVE" + before + b"fmt " + struct.pack("<I", len(fmt)) + fmt
    chunks += b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def fmt(tag: int, channels: int, bits: int, rate: int = 8_000) -> bytes:
    frame = channels * bits // 8
    return struct.pack("<HHIIHH", tag, channels, rate, rate * frame, frame, bits)


def saved(array: np.ndarray[Any, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def test_a_wav_file_of_the_standard_library():
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(2)
        writer.setsampwidth(2)
        writer.setframerate(44_100)
        writer.writeframes(SAMPLES.tobytes())
    found = decode("wav", file.getvalue())
    assert list(found) == ["", "rate"]
    assert found[""].dtype == np.int16
    assert found[""].tolist() == SAMPLES.tolist()
    assert (found["rate"].dtype, found["rate"].shape, int(found["rate"])) == (np.int64, (), 44_100)
    assert kind_of(found) == "int16[2] and int64[0]"


@pytest.mark.parametrize(
    ("tag", "bits", "body", "wanted"),
    [
        (1, 8, b"\x00\x80\xff", np.array([0, 128, 255], np.uint8)),
        (1, 16, struct.pack("<3h", -32_768, 0, 7), np.array([-32_768, 0, 7], np.int16)),
        (1, 24, b"\x00\x00\x80\xff\xff\xff\x07\x01\x00", np.array([-(2**23), -1, 263], np.int32)),
        (1, 32, struct.pack("<3i", -(2**31), 0, 7), np.array([-(2**31), 0, 7], np.int32)),
        (3, 32, struct.pack("<3f", -0.5, 0, 2), np.array([-0.5, 0, 2], np.float32)),
        (3, 64, struct.pack("<3d", -0.1, 0, 2), np.array([-0.1, 0, 2], np.float64)),
    ],
)
def test_every_encoding_of_wav(tag, bits, body, wanted):
    plain = fmt(tag, 1, bits)
    guid = struct.pack("<H", tag) + b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
    extensible = fmt(0xFFFE, 1, bits) + struct.pack("<HHI", 22, bits, 4) + guid
    for head in (plain, plain + b"\0\0", extensible):
        before = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # an odd chunk is padded
        found = decode("wav", riff(head, body, before=before) + b"id3 and so on")[""]
        assert (found.dtype, found.tolist()) == (wanted.dtype, wanted.reshape(-1, 1).tolist())


PLAIN = fmt(1, 1, 16)


NO_WAV = {
    "empty": b"",
    "an MP3": b"ID3\x04 an MP3",
    "no audio": b"RIFF\0\0\0\0WAVE",
    "no channels": riff(fmt(1, 0, 16), b""),
    "a short head": riff(PLAIN[:8], b"1234"),
    "4 bits": riff(fmt(2, 1, 4), b"1234"),
    "extensible without more": riff(fmt(0xFFFE, 1, 16), b"12"),
}


@pytest.mark.parametrize("data", NO_WAV.values(), ids=NO_WAV)
def test_what_is_no_wav_file(data):
    refused("wav", data)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.arange(3, dtype=">u2"),
        np.array(True),
        np.zeros((0, 4), np.float16),
    ],
)
def test_arrays(array):
    for version in ((1, 0), (2, 0)):
        found = decode("npy", saved(array, version=version))[""]
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert np.array_equal(found, array)


def claiming(shape: str) -> bytes:
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


NO_ARRAY = {
    "empty": b"",
    "an npz": b"PK\x03\x04 an npz",
    "cut": saved(np.arange(4, dtype="<i4"))[:-1],
    "a byte more": saved(np.arange(4, dtype="<i4")) + b"?",
    "less than claimed": claiming("(1000000000000,)"),
    "Python objects": saved(np.array([{}], object)),
    "texts": saved(np.array(["a"])),
    "complex numbers": saved(np.array([1j])),
}


@pytest.mark.parametrize("data", NO_ARRAY.values(), ids=NO_ARRAY)
def test_what_is_no_array(data):
    refused("npy", data)


def test_text_and_bytes_stay_as_they_are():
    for use, data in (("text", "grüß\r\n".encode()), ("text", b""), ("bytes", b"\xff\0")):
        found = decode(use, data)[""]
        assert (found.dtype, found.tobytes(), found.shape) == (np.uint8, data, (len(data),))
    refused("text", b"a\xff")


def test_a_shape_that_must_be():
    data = saved(np.zeros((80, 3), np.float32))
    for shape in ("80,3", "80,*", "*,*"):
        assert decode(f"npy shape={shape}", data)[""].shape == (80, 3)
    for shape in ("80,4", "80"):
        refused(f"npy shape={shape}", data)
    assert decode("npy shape=", saved(np.array(7)))[""] == 7
    refused("wav shape=*,1", riff(fmt(1, 2, 16), SAMPLES.tobytes()))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a module of the user's, under a name of its own, and returns that."""

    def write(text: str) -> str:
        name = f"own_{abs(hash((str(tmp_path), text)))}"
        (tmp_path / f"{name}.py").write_text(f"import numpy as np\n{text}")
        monkeypatch.syspath_prepend(tmp_path)
        return name

    return write


GAIN = """
def gain(data, *, times=1, name=""):
    if data == b"bad":
        raise RuntimeError("two\\nlines")
    return {"": np.frombuffer(data, np.uint8) * times, "name": np.frombuffer(name.encode(), "u1")}
gain.version = 2
gain.fields = ("", "name")
gain.expands = 3
class Kept:
    class Inner:
        version = "v1"
        def __call__(self, data):
            return np.int32(len(data))
    inner = Inner()
"""


def test_a_function_of_the_users(own):
    name = own(GAIN)
    found = decode(f"{name}:gain times=3 name=x=1", b"\x01\x02")
    lists = {key: array.tolist() for key, array in found.items()}
    assert lists == {"": [3, 6], "name": list(b"x=1")}
    assert refused(f"{name}:gain", b"bad").endswith(": RuntimeError: two lines")
    assert decode(f"{name}:Kept.inner", b"1234")[""] == 4
    uses = decoder_uses({"b": f"{name}:gain times=3", "a": "wav", "c": f"{name}:Kept.inner"})
    assert [use.version for use in resolved(uses)] == ["1", "2", "v1"]
    bound = Decoders(uses).of("b")
    assert (bound.needed_bytes(10), bound.names("b")) == (30, ("b", "b.name"))


@pytest.mark.parametrize(
    "text",
    [
        "wave",
        "no_such_module_here:f",
        *(f"MODULE:{name}" for name in ("nothing", "number", "unversioned", "two", "fine rate=1")),
        *(f"MODULE:{name}" for name in ("fields", "expands")),
        "BROKEN:f",
    ],
)
def test_what_is_no_decoder(own, text):
    module = own(
        "number = 7\n"
        "def fine(data): ...\nfine.version = 1\n"
        "def unversioned(data): ...\nunversioned.version = True\n"
        "def two(data, more): ...\n"
        "def fields(data): ...\nfields.version = 1\nfields.fields = 'rate'\n"
        "def expands(data): ...\nexpands.version = 1\nexpands.expands = '3'\n"
    )
    broken = own("1 / 0")
    use = parse_decoder("mel", text.replace("MODULE", module).replace("BROKEN", broken))
    with larder_error("config.invalid_value", "decoding.mel"):
        resolved((use,))


@pytest.mark.parametrize("value", ["[1, 2]", "None", "{'': np.zeros(1), 'rate': 3}", "{}"])
def test_a_function_that_returns_no_array_ends_the_run(own, value):
    name = own(f"def f(data):\n    return {value}\nf.version = 1\n")
    with larder_error("cache.schema", "a/b.x"):
        decode(f"{name}:f", b"")


def test_an_import_that_fails_is_not_a_bad_sample(own):
    name = own("def f(data):\n    import no_such_module_here\nf.version = 1\n")
    with larder_error("config.missing_package"):
        decode(f"{name}:f", b"")


def test_an_error_of_memory_is_not_a_bad_sample(own):
    name = own("def f(data):\n    raise MemoryError\nf.version = 1\n")
    with pytest.raises(MemoryError):
        decode(f"{name}:f", b"")


def test_which_decoder_a_part_has():
    uses = decoder_uses({"npy": "npy", "raw.npy": "bytes", "img": "image", "png": "bytes"})
    decoders = Decoders(uses)
    expected = {"npy": "npy", "a.npy": "npy", "raw.npy": "bytes", "seg.png": "bytes"}
    expected |= {"jpg": "image", "a.img": "image", "npy.gz": None, "txt": None}
    for ext, name in expected.items():
        bound = decoders.of(ext)
        found = "image" if decoders.is_image(ext) else bound.decoder.name if bound else None
        assert (found, decoders.decodes(ext)) == (name, name is not None)


def test_lines_of_decoding():
    assert parse_decoder("wav", "wav") == DecoderUse("wav", "wav")
    found = parse_decoder("a.b", "m.n:f.g  shape=3,* b=true n=-1 x=1.5 t=a=b e= i=1e999")
    arguments = '{"b":true,"e":"","i":"1e999","n":-1,"t":"a=b","x":1.5}'
    assert found == DecoderUse("a.b", "m.n:f.g", arguments, (3, None))


@pytest.mark.parametrize(
    ("ext", "text"),
    [
        *(("x", text) for text in ("", " ", "rate=3", "npy 80", "npy rate=3", "image shape=3")),
        *(("x", text) for text in ("m:f a=1 a=2", "m:f 1=2", "npy shape=3;4", "npy shape=-1")),
        ("seg.jpeg", "bytes"),
    ],
)
def test_what_is_no_line_of_decoding(ext, text):
    with pytest.raises(ValueError, match=r"\w"):
        parse_decoder(ext, text)


SOUND = np.arange(1, 401, dtype="<i2").tobytes()
SILENCE = bytes(800)
FMT = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 16_000, 32_000, 2, 16)
NOTE = b"LIST" + struct.pack("<I", 4) + b"INFO"


def chunk(length: int, body: bytes = b"") -> bytes:
    return b"data" + struct.pack("<I", length) + body


def audio(*chunks: bytes, kind: bytes = b"RIFF") -> list[int]:
    body = b"WAVE" + b"".join(chunks)
    bound = Decoders((DecoderUse("wav", "wav"),)).of("wav")
    assert bound is not None
    data = kind + struct.pack("<I", len(body)) + body
    found = bound.decode(data, "a.wav", "")[""]
    assert found.shape[1] == 1
    return found[:, 0].tolist()


UNKNOWN = {
    "0, of a killed recorder": [FMT, chunk(0, SOUND)],
    "0, and silence": [FMT, chunk(0, SILENCE)],
    "0, and a few bytes": [FMT, chunk(0, b"\1\0")],
    "0, and a name cut short": [FMT, chunk(0), b"LIS"],
    "0, and a chunk cut short": [FMT, chunk(0), NOTE[:-2]],
    "0, and bytes after a note": [FMT, chunk(0), NOTE, SOUND],
    "of a pipe": [FMT, chunk(0xFFFFFFFF, SOUND)],
    "of a pipe, signed": [FMT, chunk(0x7FFFFFFF, SOUND)],
    "of a pipe, one less": [FMT, chunk(0xFFFFFFFE, SOUND)],
    "cut short": [FMT, chunk(len(SOUND) + 2, SOUND)],
    "twice": [FMT, chunk(len(SOUND), SOUND), chunk(len(SOUND), SOUND)],
    "half a frame": [FMT, chunk(3, b"\1\0\2\0")],
}


@pytest.mark.parametrize("chunks", UNKNOWN.values(), ids=UNKNOWN)
def test_audio_of_a_length_that_is_not_in_the_header_is_refused(chunks):
    with larder_error("sample.undecodable", "a.wav"):
        audio(*chunks)


KNOWN = {
    "alone": [FMT, chunk(800, SOUND)],
    "after an empty chunk": [FMT, chunk(0), chunk(800, SOUND)],
    "after a note and an empty chunk": [FMT, NOTE, chunk(0), NOTE, chunk(800, SOUND)],
    "before an empty chunk": [FMT, chunk(800, SOUND), chunk(0)],
    "before a note": [FMT, chunk(800, SOUND), NOTE],
    "before what is no chunk": [FMT, chunk(800, SOUND), b"\0\1\2"],
    "before its format": [chunk(800, SOUND), FMT],
    "after an odd note": [FMT, b"note" + struct.pack("<I", 3) + b"abc\0", chunk(800, SOUND)],
}


@pytest.mark.parametrize("chunks", KNOWN.values(), ids=KNOWN)
def test_audio_is_found_among_other_chunks(chunks):
    assert audio(*chunks) == list(range(1, 401))


@pytest.mark.parametrize("more", [[], [NOTE], [chunk(0)]])
def test_a_file_without_audio_is_empty(more):
    assert audio(FMT, chunk(0), *more) == []


@pytest.mark.parametrize("kind", [b"RF64", b"BW64", b"RIFX", b"riff"])
def test_other_kinds_are_named(kind):
    with larder_error("sample.undecodable", "a.wav"):
        audio(FMT, chunk(800, SOUND), kind=kind)


DTYPE = np.dtype([("a", "<i8"), ("b", "<u4", (3,))])


@pytest.fixture
def collecting() -> Iterator[None]:
    """Threads take turns, and garbage is collected, as often as possible."""
    threshold, seconds = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(10)
    sys.setswitchinterval(1e-5)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(seconds)


class Garbage:
    """In a circle with itself, and with Python code that runs when it is collected."""

    def __init__(self) -> None:
        self.circle = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.mark.usefixtures("collecting")
def test_threads_read_headers_at_once():
    file = io.BytesIO()
    np.save(file, np.zeros(3, DTYPE))
    data = file.getvalue()

    def read(_: int) -> bool:
        shapes = set()
        for _ in range(200):
            Garbage()
            shapes.add(read_header(io.BytesIO(data)))
        return shapes == {((3,), False, DTYPE)}

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(8)))
