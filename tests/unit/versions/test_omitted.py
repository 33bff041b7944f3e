"""Omitted rows: ranges in version.json or in a file, and what damage makes of them."""

from __future__ import annotations

import io
import pickle
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from larder.errors import DamageError, NotFoundError
from larder.manifest.digest import sha256_hex
from larder.store import open_store
from larder.store.base import Store
from larder.store.memory import forget
from larder.versions import layout
from larder.versions.documents import (
    FileFacts,
    OmittedRows,
    SegmentUse,
    VersionDocument,
    parse_document,
    seal,
)
from larder.versions.omitted import MAX_INLINE_RANGES, Omitted, encode_omitted, read_omitted

MAX = 2**63 - 1
MANY = MAX_INLINE_RANGES + 1


@pytest.fixture
def root() -> Iterator[Store]:
    name = uuid.uuid4().hex
    yield open_store(f"memory://{name}/")
    forget(name)


def ranges(*pairs: tuple[int, int]) -> Omitted:
    return Omitted(np.array(pairs, np.int64).reshape(-1, 2))


def every_other(count: int) -> Omitted:
    return ranges(*((2 * n, 2 * n + 1) for n in range(count)))


def document(rows: dict[str, Any], files: tuple[FileFacts, ...] = ()) -> VersionDocument:
    uses = (SegmentUse("s", rows),)
    return VersionDocument("d", "v", "c", "i", uses, {}, (), files, None)


def named(root: Store, data: bytes) -> FileFacts:
    sha256 = sha256_hex(data)
    key = layout.omitted_key("v", sha256)
    root.put(key, data)
    return FileFacts(key, len(data), sha256, "omitted")


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def test_masks_and_ranges_say_the_same() -> None:
    found = Omitted.of_mask(np.array([1, 1, 0, 0, 1, 0, 1], np.bool_))
    assert found == ranges((0, 2), (4, 5), (6, 7))
    assert found.count == 4
    assert found.mask(0, 7).tolist() == [1, 1, 0, 0, 1, 0, 1]
    assert found.mask(1, 4).tolist() == [1, 0, 0, 1]
    assert found.mask(7, 2).tolist() == [0, 0]
    assert found.mask(3, 0).tolist() == []
    assert Omitted.of_mask(np.zeros(0, np.bool_)) == Omitted.none()


def test_a_sample_is_found_by_its_number_among_those_that_are_left() -> None:
    found = ranges((0, 2), (4, 5))
    assert found.rows_of([0, 1, 2, 3]).tolist() == [2, 3, 5, 6]
    assert found.rows_of([3, 0, 0]).tolist() == [6, 2, 2]
    assert Omitted.none().rows_of([5]).tolist() == [5]
    assert found.rows_of([]).tolist() == []


def test_rows_may_be_as_large_as_numbers_are() -> None:
    found = ranges((0, 1), (MAX - 3, MAX))
    assert found.count == 4
    assert found.mask(MAX - 4, 4).tolist() == [0, 1, 1, 1]
    assert found.rows_of([0, MAX - 6]).tolist() == [1, MAX - 4 - 1]
    encoded, file = encode_omitted({("s", "train"): found})
    assert file is None
    version = parse_document(VersionDocument, seal(document({"train": encoded["s", "train"]})), "x")
    assert read_omitted(open_store("memory://none/"), version) == {("s", "train"): found}


def test_a_few_ranges_are_in_the_document(root: Store) -> None:
    given = {("s", "train"): every_other(MAX_INLINE_RANGES), ("s", "test"): Omitted.none()}
    encoded, file = encode_omitted(given)
    assert file is None
    assert encoded.keys() == {("s", "train")}
    assert encoded["s", "train"].count == MAX_INLINE_RANGES
    assert read_omitted(root, document({"train": encoded["s", "train"]})) == {
        ("s", "train"): every_other(MAX_INLINE_RANGES)
    }


def test_many_ranges_are_in_one_file(root: Store) -> None:
    given = {("s", "test"): ranges((7, 9)), ("s", "train"): every_other(MAX_INLINE_RANGES)}
    encoded, data = encode_omitted(given)
    assert data is not None
    assert np.load(io.BytesIO(data), allow_pickle=False).shape == (MANY, 2)
    assert not any(rows.ranges for rows in encoded.values())
    version = document({split: rows for (_, split), rows in encoded.items()}, (named(root, data),))
    assert read_omitted(root, parse_document(VersionDocument, seal(version), "x")) == given


def refused(root: Store, rows: OmittedRows, *files: FileFacts) -> DamageError:
    with pytest.raises(DamageError) as caught:
        read_omitted(root, document({"train": rows}, files))
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "pairs",
    [
        ((0, 0),),
        ((2, 1),),
        ((-1, 1),),
        ((0, 2), (1, 3)),
        ((0, 1), (1, 2)),
        ((4, 5), (0, 1)),
        ((-MAX - 1, MAX),),
        ((0, 2), (3, 3)),
    ],
)
def test_invalid_ranges_are_damage(root: Store, pairs: tuple[tuple[int, int], ...]) -> None:
    count = sum(stop - start for start, stop in pairs)
    assert refused(root, OmittedRows(count, pairs)).code == "damage.manifest"
    data = npy(np.array(pairs, "<i8"))
    rows = OmittedRows(count, first=0, stop=len(pairs))
    assert refused(root, rows, named(root, data)).code == "damage.manifest"


@pytest.mark.parametrize(
    "rows",
    [
        OmittedRows(0),
        OmittedRows(3, ((0, 1), (2, 3))),
        OmittedRows(2),
        OmittedRows(2, first=0, stop=3),
        OmittedRows(2, first=1, stop=3),
        OmittedRows(1, first=-1, stop=2),
        OmittedRows(2, first=-2, stop=2),
        OmittedRows(2, first=2, stop=0),
        OmittedRows(1, first=5, stop=6),
    ],
)
def test_a_wrong_count_or_slice_is_damage(root: Store, rows: OmittedRows) -> None:
    file = named(root, npy(np.array([(0, 1), (2, 3)], "<i8")))
    assert refused(root, rows, file).code == "damage.manifest"


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("unpickled",)


GOOD = npy(np.array([(0, 1), (2, 3)], "<i8"))
MALFORMED = {
    "pickle": pickle.dumps(_Evil()),
    "pickle inside": npy(np.array([(_Evil(), 1)], object), allow_pickle=True),
    "empty": b"",
    "cut short": GOOD[:-1],
    "cut short by a range": GOOD[:-16],
    "cut within the header": GOOD[:40],
    "longer": GOOD + bytes(16),
    "text": b"0 1\n2 3\n",
    "zip": b"PK\x03\x04" + bytes(40),
    "float": npy(np.array([(0, 1), (2, 3)], "<f8")),
    "big-endian": npy(np.array([(0, 1), (2, 3)], ">i8")),
    "32 bits": npy(np.array([(0, 1), (2, 3)], "<i4")),
    "flat": npy(np.array([0, 1, 2, 3], "<i8")),
    "three columns": npy(np.zeros((2, 3), "<i8")),
    "by columns": npy(np.asfortranarray(np.array([(0, 1), (2, 3)], "<i8"))),
    "huge": GOOD.replace(b"(2, 2), ", b"(2**60,)"),
    "huge shape": GOOD[:128].replace(b"(2, 2), }  ", b"(999999999, 2), }")[:128],
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_file_is_damage(
    root: Store, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(root, OmittedRows(2, first=0, stop=2), named(root, MALFORMED[kind]))
    assert error.code == "damage.manifest"
    assert "omitted-" in error.where
    assert capsys.readouterr().out == ""


def test_other_bytes_than_those_published_are_damage(root: Store) -> None:
    file, rows = named(root, GOOD), OmittedRows(2, first=0, stop=2)
    for position in range(len(GOOD)):
        data = bytearray(GOOD)
        data[position] ^= 1
        root.put(file.path, bytes(data))
        error = refused(root, rows, file)
        assert (error.code, file.path in error.where) == ("damage.digest", True)
    root.delete(file.path)
    with pytest.raises(NotFoundError):
        read_omitted(root, document({"train": rows}, (file,)))
    assert refused(root, rows).code == "damage.manifest"
