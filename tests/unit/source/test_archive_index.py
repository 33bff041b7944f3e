"""Indexes of archives: what is read to make one, and when."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from larder.errors import ObjectError, StoreError
from larder.manifest.files import read_manifest
from larder.source.expand.archives import index_archive
from larder.source.expand.containers import INDEX, Indexes
from larder.store import Store, open_store
from larder.store.base import Features, ObjectInfo
from larder.store.memory import MemoryStore, forget
from tests.support.stores import RecordingStore

Tree = Mapping[str, Any]
"""The contents of files by name; those of archives are trees."""


def tar(tree: Tree) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as file:
        for name, content in tree.items():
            data = content if isinstance(content, bytes) else tar(content)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return target.getvalue()


def flat(tree: Tree, prefix: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, content in tree.items():
        if isinstance(content, bytes):
            found[prefix + name] = content
        else:
            found |= flat(content, f"{prefix}{name}/")
    return found


@pytest.fixture
def source() -> Iterator[RecordingStore]:
    yield RecordingStore(MemoryStore("archives-source"))
    forget("archives-source")


def index(
    source: Store, info: ObjectInfo, own: Store, path: Path, *, plan: bool = False, threads: int = 4
) -> tuple[bool, list[dict[str, Any]]]:
    """Whether the archive was read, and the rows of its index."""
    with ThreadPoolExecutor(threads) as executor:
        read = index_archive(source, info, Indexes(own, plan), path, executor)
    return read, [row for batch in read_manifest(path, INDEX) for row in batch.to_pylist()]


def own_of(folder: Path) -> Store:
    return open_store(str(folder / "own"))


def contents(data: bytes, rows: list[dict[str, Any]]) -> dict[str, bytes]:
    return {row["name"]: data[row["offset"] : row["offset"] + row["size_bytes"]] for row in rows}


NAMES = st.text("abc.é/", min_size=1, max_size=12).filter(
    lambda name: (
        not name.startswith("/")
        and not name.endswith(("/", ".tar"))
        and not {"", ".", ".."} & set(name.split("/"))
    )
)
TREES = st.recursive(
    st.dictionaries(NAMES, st.binary(max_size=3000), max_size=4),
    lambda trees: st.dictionaries(
        st.one_of(NAMES.map(lambda name: f"{name}x.tar")), trees, max_size=3
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TREES)
def test_every_member_is_found_wherever_it_is(
    tmp_path_factory: pytest.TempPathFactory, tree: Tree
) -> None:
    folder = tmp_path_factory.mktemp("archives")
    store = open_store(str(folder / "source"))
    data = tar(tree)
    info = store.put("x.tar", data)
    read, rows = index(store, info, own_of(folder), folder / "index")
    assert read
    assert contents(data, rows) == flat(tree)
    assert index(store, info, own_of(folder), folder / "again") == (False, rows)


def test_large_members_are_skipped(source: RecordingStore, tmp_path: Path) -> None:
    data = tar({f"{number:03}.bin": bytes(200_000) for number in range(50)})
    info = source.put("x.tar", data)
    _, rows = index(source, info, own_of(tmp_path), tmp_path / "index")
    assert len(rows) == 50
    assert source.count("get") <= 52
    assert source.moved_bytes("get") <= 52 * 2_048 + 20_000


def test_small_members_are_read_with_their_headers(source: RecordingStore, tmp_path: Path) -> None:
    data = tar({f"{number:05}.txt": bytes(700) for number in range(5_000)})
    info = source.put("x.tar", data)
    _, rows = index(source, info, own_of(tmp_path), tmp_path / "index")
    assert len(rows) == 5_000
    assert source.count("get") <= 4 + len(data) // (1 << 20)
    assert source.moved_bytes("get") < 1.2 * len(data)


def test_nothing_behind_an_inner_archive_is_read_for_it(
    source: RecordingStore, tmp_path: Path
) -> None:
    inner = {f"{number:03}.txt": bytes(700) for number in range(100)}
    data = tar({f"{number:02}.tar": inner for number in range(20)})
    info = source.put("x.tar", data)
    _, rows = index(source, info, own_of(tmp_path), tmp_path / "index")
    assert len(rows) == 2_000
    assert source.moved_bytes("get") < 1.2 * len(data)


def test_a_small_part_beside_a_large_one_costs_no_request(
    source: RecordingStore, tmp_path: Path
) -> None:
    members = {}
    for number in range(20):
        members |= {f"{number:03}.cls": b"7", f"{number:03}.jpg": bytes(150_000)}
    info = source.put("x.tar", tar(members))
    _, rows = index(source, info, own_of(tmp_path), tmp_path / "index")
    assert len(rows) == 40
    assert source.count("get") <= 22


class Together(RecordingStore):
    """Waits until several archives in the archive are read at once."""

    def __init__(self, inner: Store, count: int) -> None:
        super().__init__(inner)
        self._barrier = threading.Barrier(count)
        self.inside = frozenset[int]()

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        if offset in self.inside:
            self._barrier.wait(timeout=30)
        return super().get(key, offset=offset, length=length, if_match=if_match)


def test_archives_in_an_archive_are_read_at_the_same_time(
    source: RecordingStore, tmp_path: Path
) -> None:
    tree = {f"{name}.tar": {"x.bin": bytes(300_000)} for name in "abcd"}
    data = tar(tree)
    info = source.put("x.tar", data)
    together = Together(source, 4)
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        together.inside = frozenset(member.offset_data for member in file.getmembers())
    _, rows = index(together, info, own_of(tmp_path), tmp_path / "index")
    assert contents(data, rows) == flat(tree)


def test_a_plan_keeps_no_index(source: RecordingStore, tmp_path: Path) -> None:
    info = source.put("x.tar", tar({"a.txt": b"1"}))
    own = own_of(tmp_path)
    assert index(source, info, own, tmp_path / "index", plan=True)[0]
    assert index(source, info, own, tmp_path / "index")[0]
    assert not index(source, info, own, tmp_path / "index", plan=True)[0]


def test_archives_within_each_other_without_end_are_refused(
    source: RecordingStore, tmp_path: Path
) -> None:
    tree: Tree = {"x.txt": b"1"}
    for _ in range(8):
        tree = {"a.tar": tree}
    info = source.put("x.tar", tar(tree))
    with pytest.raises(ObjectError, match="more than 8 archives within each other"):
        index(source, info, own_of(tmp_path), tmp_path / "index")


def test_damage_within_names_the_inner_archive(source: RecordingStore, tmp_path: Path) -> None:
    tree = {"a.tar": {"x.txt": b"1"}, "b.tar": tar({"y.txt": b"2"})[:700], "c.tar": {"z": b""}}
    info = source.put("x.tar", tar(tree))
    own = own_of(tmp_path)
    with pytest.raises(ObjectError) as caught:
        index(source, info, own, tmp_path / "index")
    assert caught.value.where.endswith("x.tar/b.tar")
    assert list(tmp_path.rglob("own/*")) == []


class Denying(RecordingStore):
    @property
    def features(self) -> Features:
        return self.inner.features

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        if offset:
            raise StoreError("store.denied", "no", where=key)
        return super().get(key, offset=offset, length=length, if_match=if_match)


def test_an_error_of_the_store_is_raised(source: RecordingStore, tmp_path: Path) -> None:
    info = source.put("x.tar", tar({f"{name}.tar": {"x": bytes(300_000)} for name in "abcdef"}))
    own = own_of(tmp_path)
    with pytest.raises(StoreError):
        index(Denying(source), info, own, tmp_path / "index")
    assert list(tmp_path.rglob("own/*")) == []
