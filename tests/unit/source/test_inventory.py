"""What an inventory counts of the storage classes of a listing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from larder.manifest.files import read_manifest
from larder.progress import NullProgress
from larder.source.archived import ARCHIVED
from larder.source.inventory import BATCH_ROWS, list_source, take_inventory
from larder.store.base import ObjectInfo
from larder.store.memory import MemoryStore

CLASSES = ("", "GLACIER", "STANDARD_IA", "DEEP_ARCHIVE", "")


class Classed(MemoryStore):
    """Lists three batches of objects: the first of the standard class, the others of all."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        for first in range(0, 3 * BATCH_ROWS, 1_000):
            yield [self.info(number) for number in range(first, first + 1_000)]

    @staticmethod
    def info(number: int) -> ObjectInfo:
        name = CLASSES[number % len(CLASSES)] if number > BATCH_ROWS else ""
        suffix = "txt" if number % 3 else "jpg"
        return ObjectInfo(f"{number:09}.{suffix}", number, "etag", 0, name)


def test_classes_are_counted_of_what_the_globs_select(tmp_path: Path) -> None:
    store, expected, archived = Classed("classes"), dict[str, tuple[int, int]](), []
    for number in range(0, 3 * BATCH_ROWS, 3):
        info = store.info(number)
        if info.storage_class and not info.key.endswith("0.jpg"):
            count, size = expected.get(info.storage_class, (0, 0))
            expected[info.storage_class] = count + 1, size + info.size_bytes
            if info.storage_class in ("GLACIER", "DEEP_ARCHIVE"):
                archived.append((info.key, info.storage_class))
    assert len(expected) == 3
    for take in (take_inventory, list_source):
        folder = tmp_path / take.__name__
        folder.mkdir()
        found = take(store, ["*.jpg"], ["*0.jpg"], folder / "objects", NullProgress())
        assert found.classes == expected
        assert found.archived is not None
        rows = [
            row
            for batch in read_manifest(found.archived.path, ARCHIVED)
            for row in batch.to_pylist()
        ]
        assert [tuple(row.values()) for row in rows] == archived
        assert found.listed == 3 * BATCH_ROWS
