"""Files of a killed builder of a cached function go, though the cache is not built again."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import larder
from larder.datalayer.catalog import remove_caches

NAME = "d/v1_train"


def read(storage: Path, cache_dir: Path) -> None:
    decorate = larder.cache_train_dataset("d", "v1", storage=storage, cache_dir=cache_dir)
    assert [int(each) for each in decorate(lambda: iter([1, 2, 3]))()] == [1, 2, 3]


def remove(storage: Path, cache_dir: Path) -> None:
    del cache_dir
    for lease in (storage / NAME / "leases").glob("*"):
        lease.unlink()
    remove_caches("d", "v1", None, str(storage))


def left(folder: Path) -> list[str]:
    """List temporary files, but for locks."""
    found = (each for each in folder.iterdir() if each.name.startswith(".larder-tmp-"))
    return [each.name for each in found if not each.name.endswith(".lock")]


@pytest.mark.parametrize("then", [read, remove])
@pytest.mark.parametrize("is_remote", [False, True])
def test_what_a_builder_of_another_container_left_goes(
    then: Callable[[Path, Path], None],
    is_remote: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a network file system, a draft that is old; else its private directory, at once."""
    monkeypatch.setattr("larder.datalayer.place.is_on_network", lambda folder: is_remote)
    storage, cache_dir = tmp_path / "storage", tmp_path / "local"
    read(storage, cache_dir)
    home = storage / NAME
    if is_remote:
        path = home / f".larder-tmp-draft-{'0' * 24}"
        path.write_bytes(b"half of a file")
        os.utime(path, (0, 0))
    else:
        path = home / ".larder-tmp-workshop-abcd1234"
        path.mkdir()
        (path / "0.mdb").write_bytes(b"half of a file")
        (path / "lock").touch()
    then(storage, cache_dir)
    assert left(home) == []


def test_the_directory_of_a_killed_builder_goes_from_where_copies_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("larder.datalayer.place.is_on_network", lambda folder: True)
    read(tmp_path / "storage", tmp_path / "local")
    home = tmp_path / "local/yogadl_local_cache" / NAME
    (home / ".larder-tmp-workshop-abcd1234").mkdir()
    (home / ".larder-tmp-workshop-abcd1234/lock").touch()
    read(tmp_path / "storage", tmp_path / "local")
    assert left(home) == []
