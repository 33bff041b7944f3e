"""Omitted rows in version.json or in a file: the largest, and what damage makes of them.

tests/property/test_property_omitted.py has what is written, read and asked.
"""

import io
import pickle
from typing import Any

import numpy as np
import pytest

from larder.errors import DamageError, NotFoundError
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import StoredFile, seal
from larder.store import open_store
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import (
    OmittedRows,
    SegmentUse,
    SplitFacts,
    VersionDocument,
    parse_document,
)
from larder.versions.omitted import Omitted, encode_omitted, read_omitted

MAX = 2**63 - 1
SEGMENT = "5" * 32


NONE = SplitFacts(0, 0, 0, ())


def document(rows: dict[str, Any], files: tuple[StoredFile, ...] = ()) -> VersionDocument:
    uses = (SegmentUse(SEGMENT, rows),)
    return VersionDocument(
        "d", "1" * 32, "2" * 64, "3" * 64, uses, {"train": NONE}, (), files, None
    )


def named(root: Store, data: bytes) -> StoredFile:
    sha256 = sha256_hex(data)
    key = layout.omitted_key("v", sha256)
    root.put(key, data)
    return StoredFile(key, len(data), sha256, "omitted")


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def test_rows_may_be_as_large_as_numbers_are():
    found = Omitted(np.array([(0, 1), (MAX - 3, MAX)]))
    assert found.count == 4
    assert found.mask(MAX - 4, 4).tolist() == [0, 1, 1, 1]
    assert found.rows_of([0, MAX - 6]).tolist() == [1, MAX - 4 - 1]
    encoded, file = encode_omitted({(SEGMENT, "train"): found})
    assert file is None
    version = parse_document(
        VersionDocument, seal(document({"train": encoded[SEGMENT, "train"]})), "x"
    )
    assert read_omitted(open_store("memory://none/"), version) == {(SEGMENT, "train"): found}


def refused(root: Store, rows: OmittedRows, *files: StoredFile) -> DamageError:
    with pytest.raises(DamageError) as caught:
        read_omitted(root, document({"train": rows}, files))
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
def test_invalid_ranges_are_damage(root, pairs):
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
def test_a_wrong_count_or_slice_is_damage(root, rows):
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
    "cut within the header": GOOD[:40],
    "longer": GOOD + bytes(16),
    "big-endian": npy(np.array([(0, 1), (2, 3)], ">i8")),
    "flat": npy(np.array([0, 1, 2, 3], "<i8")),
    "by columns": npy(np.asfortranarray(np.array([(0, 1), (2, 3)], "<i8"))),
    "huge": GOOD.replace(b"(2, 2), ", b"(2**60,)"),
    "huge shape": GOOD[:128].replace(b"(2, 2), }  ", b"(999999999, 2), }")[:128],
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_file_is_damage(root, kind, capsys):
    error = refused(root, OmittedRows(2, first=0, stop=2), named(root, MALFORMED[kind]))
    assert error.code == "damage.manifest"
    assert "omitted-" in error.where
    assert capsys.readouterr().out == ""


def test_other_bytes_than_those_published_are_damage(root):
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
