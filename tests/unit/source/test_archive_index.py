"""Indexes of archives: what is read to make one, and when."""

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
from larder.manifest.manifest_files import read_manifest
from larder.source.expand.archives import index_archive
from larder.source.expand.containers import INDEX, Indexes
from larder.store import Store, open_store
from larder.store.base import ObjectInfo
from larder.store.delegate import DelegatingStore
from tests.support.memory import MemoryStore, forget
from tests.support.stores import FaultyStore, RecordingStore, denied

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
def test_every_member_is_found_wherever_it_is(tmp_path_factory, tree):
    folder = tmp_path_factory.mktemp("archives")
    store = open_store(str(folder / "source"))
    data = tar(tree)
    info = store.put("x.tar", data)
    read, rows = index(store, info, own_of(folder), folder / "index")
    assert read
    assert contents(data, rows) == flat(tree)
    assert index(store, info, own_of(folder), folder / "again") == (False, rows)


SIZES = {"cls": 1, "jpg": 150_000}
INNER = {f"{number:03}.txt": bytes(700) for number in range(100)}
PAIRS = {f"{number:03}.{ext}": bytes(size) for number in range(20) for ext, size in SIZES.items()}


@pytest.mark.parametrize(
    ("tree", "members", "requests", "share"),
    [
        ({f"{number:03}.bin": bytes(200_000) for number in range(50)}, 50, 52, 0.013),
        ({f"{number:05}.txt": bytes(700) for number in range(5_000)}, 5_000, 11, 1.2),
        ({f"{number:02}.tar": INNER for number in range(20)}, 2_000, 1_000, 1.2),
        (PAIRS, 40, 22, 1.0),
    ],
    ids=["large members are skipped", "small ones are read together", "inner archives", "pairs"],
)
def test_few_requests_read_few_bytes(source, tmp_path, tree, members, requests, share):
    """``share`` is that of the archive's bytes; of inner archives, nothing behind them is read."""
    data = tar(tree)
    info = source.put("x.tar", data)
    _, rows = index(source, info, own_of(tmp_path), tmp_path / "index")
    assert len(rows) == members
    assert source.count("get") <= requests
    assert source.moved_bytes("get") <= share * len(data)


def test_archives_in_an_archive_are_read_at_the_same_time(source, tmp_path):
    tree = {f"{name}.tar": {"x.bin": bytes(300_000)} for name in "abcd"}
    data = tar(tree)
    info = source.put("x.tar", data)
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        inside = {member.offset_data for member in file.getmembers()}
    barrier = threading.Barrier(4)

    class Together(DelegatingStore):
        """Waits until all four are read at once."""

        def around(self, method: str, key: str, call: Any, **options: Any) -> Any:
            if method == "get" and options.get("offset") in inside:
                barrier.wait(timeout=30)
            return call(**options)

    _, rows = index(Together(source), info, own_of(tmp_path), tmp_path / "index")
    assert contents(data, rows) == flat(tree)


def test_archives_within_each_other_without_end_are_refused(source, tmp_path):
    tree: Tree = {"x.txt": b"1"}
    for _ in range(8):
        tree = {"a.tar": tree}
    info = source.put("x.tar", tar(tree))
    with pytest.raises(ObjectError):
        index(source, info, own_of(tmp_path), tmp_path / "index")


def test_damage_within_names_the_inner_archive(source, tmp_path):
    tree = {"a.tar": {"x.txt": b"1"}, "b.tar": tar({"y.txt": b"2"})[:700], "c.tar": {"z": b""}}
    info = source.put("x.tar", tar(tree))
    own = own_of(tmp_path)
    with pytest.raises(ObjectError) as caught:
        index(source, info, own, tmp_path / "index")
    assert caught.value.where.endswith("x.tar/b.tar")
    assert list(tmp_path.rglob("own/*")) == []


def test_an_error_of_the_store_is_raised(source, tmp_path):
    info = source.put("x.tar", tar({f"{name}.tar": {"x": bytes(300_000)} for name in "abcdef"}))
    own = own_of(tmp_path)
    denying = FaultyStore(source)
    denying.add("get", denied(), nth=2, times=None)
    with pytest.raises(StoreError):
        index(denying, info, own, tmp_path / "index")
    assert list(tmp_path.rglob("own/*")) == []
