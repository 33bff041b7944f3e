"""Which keys a listing is about: columns of globs, and Larder's own files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from larder.config.patterns import compile_globs
from larder.errors import ConfigError
from larder.progress import NullProgress
from larder.source.inventory import take_inventory
from larder.source.selection import KeyRule, without_own
from larder.store.base import ObjectInfo
from larder.store.memory import MemoryStore, forget

KEYS = ["a", "a\nb", "a/b.jpg", "a/é.jpg", "train/x/1.JPEG", "\U0001f600/.b", "*"]


@pytest.mark.parametrize(
    "globs", [("**",), ("*",), ("**/*.jpg", "train/**"), ("[*]",), ("{a,b}/?.jpg",), ("a?b",), ()]
)
def test_columns_are_matched_as_single_keys_are(globs: tuple[str, ...]) -> None:
    single = compile_globs(globs)
    expected = [single is not None and single.fullmatch(key) is not None for key in KEYS]
    assert KeyRule(globs)(pa.array(KEYS)).tolist() == expected


def pages(*keys: str, size: int) -> list[list[ObjectInfo]]:
    infos = [ObjectInfo(key, 1, "e", 0) for key in keys]
    return [infos[at : at + size] for at in range(0, len(infos), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_own_files_are_left_out_wherever_pages_end(size: int) -> None:
    keys = (
        "A",
        "_larder",
        "_larder-",
        "_larder/",
        "_larder/copy/x",
        "_larder0",
        "_larderer/x",
        "a",
    )
    left = [info.key for page in without_own(pages(*keys, size=size)) for info in page]
    assert left == [key for key in keys if not key.startswith("_larder/")]


def test_an_inventory_has_no_own_files_and_is_empty_without_others(tmp_path: Path) -> None:
    store = MemoryStore("selection")
    try:
        store.put("_larder/copy/copy.json", b"{}")
        with pytest.raises(ConfigError, match="the source is empty"):
            take_inventory(store, ("**",), (), tmp_path / "i.parquet", NullProgress())
        store.put("b/_larder/x", b"x")
        found = take_inventory(store, ("**",), (), tmp_path / "i.parquet", NullProgress())
        assert (found.objects, found.listed, found.bytes) == (1, 1, 1)
    finally:
        forget("selection")
