from __future__ import annotations

import hashlib

import pytest

from larder.errors import StoreError
from larder.shards.output import HashedOutput
from larder.store import ObjectInfo, open_store
from larder.store.base import Buffer
from tests.support.memory import forget

MIB = 1 << 20


class Broken:
    """A writer whose disk is full from the second block on."""

    def __init__(self) -> None:
        self.blocks = 0

    def write(self, data: Buffer) -> None:
        self.blocks += 1
        if self.blocks > 1:
            raise StoreError("store.full", "no space is left")

    def commit(self) -> ObjectInfo:
        raise AssertionError("never committed")

    def abort(self) -> None: ...

    def __enter__(self) -> Broken:
        return self

    def __exit__(self, *error: object) -> None: ...


@pytest.mark.parametrize(
    "sizes",
    [[], [0], [MIB], [MIB - 1, 1, 1], [MIB + 1], [17 * MIB + 5, 3], [MIB] * 30, [1000] * 20_000],
)
@pytest.mark.parametrize("beside", [True, False])
def test_pieces_come_out_joined_and_hashed(sizes, beside):
    pieces = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    store = open_store("memory://shards-output")
    with store.writer("x") as writer, HashedOutput(writer, beside=beside) as output:
        for first in range(0, len(pieces), 3):
            some = pieces[first : first + 3]
            output.append(some, sum(map(len, some)))
        assert output.bytes == sum(sizes)
        digest = output.finish()
        writer.commit()
    data = store.get("x")
    forget("shards-output")
    assert data == b"".join(pieces)
    assert digest == hashlib.sha256(data).hexdigest()


def test_an_error_of_the_writer_comes_out():
    with HashedOutput(Broken()) as output:
        output.append([bytes(2 * MIB)], 2 * MIB)
        with pytest.raises(StoreError):
            output.finish()


@pytest.mark.parametrize("beside", [True, False])
def test_an_error_of_the_writer_stops_the_caller(beside):
    piece = bytes(40 * MIB)
    with HashedOutput(Broken(), beside=beside) as output, pytest.raises(StoreError):
        output.append([piece], len(piece))
