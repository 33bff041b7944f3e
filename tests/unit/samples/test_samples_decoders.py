"""What decoders make of parts, and what they refuse."""

from __future__ import annotations

import io
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from larder.config.shape import DecoderUse, decoder_uses, parse_decoder
from larder.errors import ConfigError, FatalError, ObjectError
from larder.samples.decoders import Decoders, kind_of, resolved

SAMPLES = np.arange(-6, 6, dtype="<i2").reshape(6, 2)


def decode(text: str, data: bytes, ext: str = "x") -> dict[str, Any]:
    bound = Decoders((parse_decoder(ext, text),)).of(ext)
    assert bound is not None
    return bound.decode(data, "a/b.x", "fix it")


def reason(text: str, data: bytes) -> str:
    with pytest.raises(ObjectError) as caught:
        decode(text, data)
    error = caught.value
    assert (error.code, error.where, error.hint) == ("sample.undecodable", "a/b.x", "fix it")
    use = text.split()[0]
    assert error.message.startswith(f"{use} cannot decode it: ")
    return error.message.removeprefix(f"{use} cannot decode it: ")


def riff(fmt: bytes, body: bytes, *, before: bytes = b"", claimed: int | None = None) -> bytes:
    length = len(body) if claimed is None else claimed
    chunks = b"WAVE" + before + b"fmt " + struct.pack("<I", len(fmt)) + fmt
    chunks += b"data" + struct.pack("<I", length) + body
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def fmt(tag: int, channels: int, bits: int, rate: int = 8_000) -> bytes:
    frame = channels * bits // 8
    return struct.pack("<HHIIHH", tag, channels, rate, rate * frame, frame, bits)


def saved(array: np.ndarray[Any, Any], **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def test_a_wav_file_of_the_standard_library() -> None:
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
def test_every_encoding_of_wav(tag: int, bits: int, body: bytes, wanted: Any) -> None:
    plain = fmt(tag, 1, bits)
    guid = struct.pack("<H", tag) + b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
    extensible = fmt(0xFFFE, 1, bits) + struct.pack("<HHI", 22, bits, 4) + guid
    for head in (plain, plain + b"\0\0", extensible):
        before = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # an odd chunk is padded
        found = decode("wav", riff(head, body, before=before) + b"id3 and so on")[""]
        assert (found.dtype, found.tolist()) == (wanted.dtype, wanted.reshape(-1, 1).tolist())


PLAIN = fmt(1, 1, 16)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is no WAV file"),
        (b"ID3\x04 an MP3", "it is no WAV file"),
        (b"RIFF\0\0\0\0WAVE", "it has no audio"),
        (riff(PLAIN, b"1234")[:-1], "it has 3 bytes of audio instead of 4"),
        (riff(PLAIN, b"1234", claimed=2**32 - 1), "it has 4 bytes of audio instead of 4294967295"),
        (riff(PLAIN, b"123"), "3 bytes are no whole frames of 1 channels"),
        (riff(fmt(1, 0, 16), b""), "0 bytes are no whole frames of 0 channels"),
        (riff(PLAIN[:8], b"1234"), "its chunk fmt is too short"),
        (riff(fmt(2, 1, 4), b"1234"), "its encoding, format 2 of 4 bits, is not supported"),
        (riff(fmt(0xFFFE, 1, 16), b"12"), "its encoding, format 65534 of 16 bits, is not sup"),
    ],
)
def test_what_is_no_wav_file(data: bytes, message: str) -> None:
    assert reason("wav", data).startswith(message)


def test_audio_of_no_frames() -> None:
    assert decode("wav", riff(fmt(1, 2, 16), b""))[""].shape == (0, 2)


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
def test_arrays(array: np.ndarray[Any, Any]) -> None:
    for version in ((1, 0), (2, 0)):
        found = decode("npy", saved(array, version=version))[""]
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert np.array_equal(found, array)


def claiming(shape: str) -> bytes:
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "EOF: reading magic string, expected 8 bytes got 0"),
        (b"PK\x03\x04 an npz", "the magic string is not correct"),
        (saved(np.arange(4, dtype="<i4"))[:-1], "it has 15 bytes of elements instead of 16"),
        (saved(np.arange(4, dtype="<i4")) + b"?", "it has 17 bytes of elements instead of 16"),
        (claiming("(1000000000000,)"), "it has 0 bytes of elements instead of 4000000000000"),
        (saved(np.array([{}], object)), "it has Python objects"),
        (saved(np.array(["a"])), "its elements are <U1, which no cache can hold"),
        (saved(np.array([1j])), "its elements are complex128, which no cache can hold"),
    ],
)
def test_what_is_no_array(data: bytes, message: str) -> None:
    assert message in reason("npy", data)


def test_text_and_bytes_stay_as_they_are() -> None:
    for use, data in (("text", "grüß\r\n".encode()), ("text", b""), ("bytes", b"\xff\0")):
        found = decode(use, data)[""]
        assert (found.dtype, found.tobytes(), found.shape) == (np.uint8, data, (len(data),))
    assert "invalid start byte" in reason("text", b"a\xff")


def test_a_shape_that_must_be() -> None:
    data = saved(np.zeros((80, 3), np.float32))
    for shape in ("80,3", "80,*", "*,*"):
        assert decode(f"npy shape={shape}", data)[""].shape == (80, 3)
    assert reason("npy shape=80,4", data) == "its shape is (80, 3), not (80, 4)"
    assert reason("npy shape=80", data) == "its shape is (80, 3), not (80)"
    assert decode("npy shape=", saved(np.array(7)))[""] == 7
    assert "its shape is (6, 2)" in reason("wav shape=*,1", riff(fmt(1, 2, 16), SAMPLES.tobytes()))


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


def test_a_function_of_the_users(own: Any) -> None:
    name = own(GAIN)
    found = decode(f"{name}:gain times=3 name=x=1", b"\x01\x02")
    assert {key: array.tolist() for key, array in found.items()} == {
        "": [3, 6],
        "name": list(b"x=1"),
    }
    assert reason(f"{name}:gain", b"bad") == "RuntimeError: two lines"
    assert decode(f"{name}:Kept.inner", b"1234")[""] == 4
    uses = decoder_uses({"b": f"{name}:gain times=3", "a": "wav", "c": f"{name}:Kept.inner"})
    assert [use.version for use in resolved(uses)] == ["1", "2", "v1"]
    bound = Decoders(uses).of("b")
    assert bound is not None
    assert (bound.needed_bytes(10), bound.names("b")) == (30, ("b", "b.name"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wave", "there is no decoder 'wave'"),
        ("no_such_module_here:f", "cannot be imported: ModuleNotFoundError: No module named"),
        ("MODULE:nothing", "cannot be imported: AttributeError: module"),
        ("MODULE:number", "is no function"),
        ("MODULE:unversioned", "has no version"),
        ("MODULE:two", "cannot be called: missing a required argument"),
        ("MODULE:fine rate=1", "cannot be called: got an unexpected keyword argument 'rate'"),
        ("MODULE:fields", "has invalid attributes"),
        ("MODULE:expands", "has invalid attributes"),
        ("BROKEN:f", "cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_no_decoder(own: Any, text: str, message: str) -> None:
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
    with pytest.raises(ConfigError, match=message) as caught:
        resolved((use,))
    assert (caught.value.code, caught.value.where) == ("config.invalid_value", "decoding.mel")
    assert caught.value.hint or "is no function" in message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return [1, 2]", "returned a list, not an array"),
        ("return None", "returned a NoneType, not an array"),
        ("return {'': np.zeros(1), 'rate': 3}", "returned '', 'rate' instead of ''"),
        ("return {}", "returned nothing instead of ''"),
    ],
)
def test_a_function_that_returns_no_array_ends_the_run(own: Any, body: str, message: str) -> None:
    name = own(f"def f(data):\n    {body}\nf.version = 1\n")
    with pytest.raises(FatalError, match=message) as caught:
        decode(f"{name}:f", b"")
    assert (caught.value.code, caught.value.where) == ("cache.schema", "a/b.x")


def test_an_error_of_memory_is_not_a_bad_sample(own: Any) -> None:
    name = own("def f(data):\n    raise MemoryError\nf.version = 1\n")
    with pytest.raises(MemoryError):
        decode(f"{name}:f", b"")


def test_which_decoder_a_part_has() -> None:
    uses = decoder_uses({"npy": "npy", "raw.npy": "bytes", "img": "image", "png": "bytes"})
    decoders = Decoders(uses)
    names = {
        ext: "image" if decoders.is_image(ext) else bound.decoder.name if bound else None
        for ext in ("npy", "a.npy", "raw.npy", "npy.gz", "jpg", "seg.png", "a.img", "txt")
        for bound in (decoders.of(ext),)
    }
    assert names == {
        "npy": "npy",
        "a.npy": "npy",
        "raw.npy": "bytes",
        "npy.gz": None,
        "jpg": "image",
        "seg.png": "bytes",
        "a.img": "image",
        "txt": None,
    }
    assert all(decoders.decodes(ext) == (name is not None) for ext, name in names.items())


def test_lines_of_decoding() -> None:
    assert parse_decoder("wav", "wav") == DecoderUse("wav", "wav")
    found = parse_decoder("a.b", "m.n:f.g  shape=3,* b=true n=-1 x=1.5 t=a=b e= i=1e999")
    arguments = '{"b":true,"e":"","i":"1e999","n":-1,"t":"a=b","x":1.5}'
    assert found == DecoderUse("a.b", "m.n:f.g", arguments, (3, None))


@pytest.mark.parametrize(
    ("ext", "text"),
    [
        ("x", ""),
        ("x", " "),
        ("x", "rate=3"),
        ("x", "npy 80"),
        ("x", "npy rate=3"),
        ("x", "m:f a=1 a=2"),
        ("x", "m:f 1=2"),
        ("x", "npy shape=3;4"),
        ("x", "npy shape=-1"),
        ("x", "image shape=3"),
        ("seg.jpeg", "bytes"),
    ],
)
def test_what_is_no_line_of_decoding(ext: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|only functions|shape is|jpg"):
        parse_decoder(ext, text)
