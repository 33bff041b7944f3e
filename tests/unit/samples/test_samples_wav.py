"""WAV files whose header does not say how long the audio is."""

import struct

import numpy as np
import pytest

from larder.config.shape import DecoderUse
from larder.samples.decoders import Decoders
from tests.support.errors import larder_error

SAMPLES = np.arange(1, 401, dtype="<i2").tobytes()
SILENCE = bytes(800)
FMT = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 16_000, 32_000, 2, 16)
NOTE = b"LIST" + struct.pack("<I", 4) + b"INFO"


def chunk(length: int, body: bytes = b"") -> bytes:
    return b"data" + struct.pack("<I", length) + body


def decoded(*chunks: bytes, kind: bytes = b"RIFF") -> list[int]:
    body = b"WAVE" + b"".join(chunks)
    bound = Decoders((DecoderUse("wav", "wav"),)).of("wav")
    assert bound is not None
    data = kind + struct.pack("<I", len(body)) + body
    found = bound.decode(data, "a.wav", "")[""]
    assert found.shape[1] == 1
    return found[:, 0].tolist()


UNKNOWN = {
    "0, of a killed recorder": [FMT, chunk(0, SAMPLES)],
    "0, and silence": [FMT, chunk(0, SILENCE)],
    "0, and a few bytes": [FMT, chunk(0, b"\1\0")],
    "0, and a name cut short": [FMT, chunk(0), b"LIS"],
    "0, and a chunk cut short": [FMT, chunk(0), NOTE[:-2]],
    "0, and bytes after a note": [FMT, chunk(0), NOTE, SAMPLES],
    "of a pipe": [FMT, chunk(0xFFFFFFFF, SAMPLES)],
    "of a pipe, signed": [FMT, chunk(0x7FFFFFFF, SAMPLES)],
    "of a pipe, one less": [FMT, chunk(0xFFFFFFFE, SAMPLES)],
    "cut short": [FMT, chunk(len(SAMPLES) + 2, SAMPLES)],
    "twice": [FMT, chunk(len(SAMPLES), SAMPLES), chunk(len(SAMPLES), SAMPLES)],
    "half a frame": [FMT, chunk(3, b"\1\0\2\0")],
}


@pytest.mark.parametrize("chunks", UNKNOWN.values(), ids=UNKNOWN)
def test_audio_of_a_length_that_is_not_in_the_header_is_refused(chunks):
    with larder_error("sample.undecodable", "a.wav"):
        decoded(*chunks)


KNOWN = {
    "alone": [FMT, chunk(800, SAMPLES)],
    "after an empty chunk": [FMT, chunk(0), chunk(800, SAMPLES)],
    "after a note and an empty chunk": [FMT, NOTE, chunk(0), NOTE, chunk(800, SAMPLES)],
    "before an empty chunk": [FMT, chunk(800, SAMPLES), chunk(0)],
    "before a note": [FMT, chunk(800, SAMPLES), NOTE],
    "before what is no chunk": [FMT, chunk(800, SAMPLES), b"\0\1\2"],
    "before its format": [chunk(800, SAMPLES), FMT],
    "after an odd note": [FMT, b"note" + struct.pack("<I", 3) + b"abc\0", chunk(800, SAMPLES)],
}


@pytest.mark.parametrize("chunks", KNOWN.values(), ids=KNOWN)
def test_audio_is_found_among_other_chunks(chunks):
    assert decoded(*chunks) == list(range(1, 401))


@pytest.mark.parametrize("more", [[], [NOTE], [chunk(0)]])
def test_a_file_without_audio_is_empty(more):
    assert decoded(FMT, chunk(0), *more) == []


@pytest.mark.parametrize("kind", [b"RF64", b"BW64", b"RIFX", b"riff"])
def test_other_kinds_are_named(kind):
    with larder_error("sample.undecodable", "a.wav"):
        decoded(FMT, chunk(800, SAMPLES), kind=kind)
