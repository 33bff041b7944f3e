"""Shards kept on a machine, and versions downloaded to it, whatever is killed meanwhile."""

import fcntl
import hashlib
import json
import multiprocessing
import os
import random
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pipeline_lab import Lab, directory_lab, flip, write
from required import at_push, missing

import larder
from larder.errors import ConfigError, DamageError
from larder.readers.data import Data
from larder.readers.keep import KeptShards
from larder.store import download
from larder.store.own_files import read_digest
from tests.support.errors import larder_error

SHARDS, EACH = 8, 3


def blobs() -> dict[str, bytes]:
    numbers = range(SHARDS * EACH)
    return {
        f"{'ab'[number % 2]}/{number:02}.bin": random.Random(number).randbytes(5_000)
        for number in numbers
    }


def lab_of(folder: Path, **fields: Any) -> Lab:
    defaults = {"validate": "none", "cache": None, "shards": {"samples_per_shard": EACH}}
    lab = directory_lab(folder, blobs(), **{**defaults, **fields})
    lab.prepare()
    return lab


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A dataset for tests that only read it."""
    return lab_of(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def data(shared: Lab) -> Data:
    return larder.open(f"{shared.storage}/larder/d")


@pytest.fixture
def shard_bytes(shared: Lab) -> int:
    return max(path.stat().st_size for path in shared.files("*.tar"))


def shards_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix == ".tar")


def is_clean(folder: Path) -> bool:
    return not [path for path in folder.rglob(".larder-tmp-*") if path.is_file()]


def test_kept_shards_are_read_again_without_the_storage(tmp_path):
    lab = lab_of(tmp_path)
    data = larder.open(f"{lab.storage}/larder/d")
    wanted = list(data.samples("train"))
    keep = tmp_path / "keep"
    samples = data.samples_of("train", keep=keep, check="once")
    assert samples.has_shards_local
    assert samples[4] == wanted[4]
    assert len(shards_in(keep)) == 1
    assert list(samples) == wanted
    assert len(shards_in(keep)) == SHARDS
    for path in lab.files("*.tar"):
        path.unlink()
    assert data.samples_of("train", keep=keep).batch(range(len(wanted))) == wanted
    assert {path.stem for path in shards_in(keep)} == {
        hashlib.sha256(path.read_bytes()).hexdigest() for path in shards_in(keep)
    }


def test_the_limit_is_kept_and_the_least_recently_used_goes(data, tmp_path, shard_bytes):
    wanted = list(data.samples("train"))
    keep = tmp_path / "keep"
    samples = data.samples_of("train", keep=keep, keep_bytes=3 * shard_bytes)
    for number in (0, EACH, 2 * EACH, 0, 3 * EACH):
        assert samples[number] == wanted[number]
    kept = {path.stem for path in shards_in(keep)}
    names = [file.sha256 for file in samples.shard_files()]
    assert kept == {names[shard] for shard in (0, 2, 3)}
    assert list(samples) == wanted
    assert len(shards_in(keep)) == 3


@pytest.mark.parametrize("when", ["_scanned", "_is_abandoned"])
def test_a_download_that_ends_while_files_are_counted_counts(when, tmp_path, monkeypatch):
    shard = tmp_path / f"{'a' * 64}.tar"
    draft = tmp_path / f".larder-tmp-draft-{'0' * 16}"
    draft.write_bytes(bytes(100))
    (tmp_path / ".larder-kept").write_text(f"\n{shard.name}")
    kept = KeptShards(tmp_path, 150)
    method = getattr(KeptShards, when)

    def ended(self: KeptShards, *arguments: Any) -> Any:
        if when == "_scanned":
            files = method(self, *arguments)
            draft.rename(shard) if draft.exists() else None
            return files
        draft.rename(shard)
        return method(self, *arguments)

    monkeypatch.setattr(KeptShards, when, ended)
    assert not kept._over(60)
    assert not shard.exists()


def test_a_limit_below_the_largest_shard_is_refused(data, tmp_path, shard_bytes):
    for limit in (shard_bytes - 1, "1 kB", 0):
        with pytest.raises(ConfigError) as caught:
            data.samples_of("train", keep=tmp_path / "keep", keep_bytes=limit)
        assert caught.value.where == "keep_bytes"
    with pytest.raises(ConfigError):
        data.samples_of("train", keep=tmp_path / "keep", keep_bytes="a lot")


def test_what_a_killed_process_was_downloading_is_removed(data, tmp_path, shard_bytes):
    keep = tmp_path / "keep"
    keep.mkdir()
    left = keep / f".larder-tmp-draft-{'0' * 16}"
    left.write_bytes(bytes(shard_bytes))
    samples = data.samples_of("train", keep=keep, keep_bytes=shard_bytes)
    samples[0]
    assert not left.exists()


def test_only_what_was_recorded_is_removed(data, tmp_path, shard_bytes):
    """The record of a folder that was copied may be missing, and others have files there."""
    wanted = list(data.samples("train"))
    keep = tmp_path / "keep"
    (file, *_) = data.samples_of("train").shard_files()
    names = ["a" * 64, f"{'b' * 64}.tar", ".larder-tmp-lock", f"{'c' * 64}.tar"]
    list(data.samples_of("train", keep=keep))
    (keep / ".larder-kept").unlink()
    for name in names[:3]:
        (keep / name).write_bytes(bytes(shard_bytes))
    (keep / names[3]).symlink_to("nowhere")
    before = set(os.listdir(keep))
    path = keep / f"{file.sha256}.tar"
    path.unlink()
    narrow = {"keep": keep, "keep_bytes": shard_bytes}
    assert list(data.samples_of("train", **narrow)) == wanted
    assert before | {".larder-kept"} == set(os.listdir(keep))
    for content in (bytes(shard_bytes), b"short"):  # one more of theirs has the name of a shard
        (keep / ".larder-kept").unlink(missing_ok=True)
        path.write_bytes(content)
        with larder_error("config.path", str(path)):
            data.samples_of("train", **narrow, check="once")[0]
        assert path.read_bytes() == content


def test_a_folder_of_a_storage_is_refused(shared, data, tmp_path):
    dataset = Path(str(shared.storage), "larder", "d")
    (tmp_path / "link").symlink_to(next(dataset.glob("segments/*/shards/train")))
    for folder in (shared.storage, dataset.parent, dataset, dataset / "new", tmp_path / "link"):
        with larder_error("config.path", str(folder)):
            data.samples_of("train", keep=folder)


def test_shards_of_another_user_are_read():
    if os.geteuid():
        missing("needs root")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        data = larder.open(f"{lab_of(Path(folder)).storage}/larder/d")
        keep = Path(folder, "keep")
        wanted = list(data.samples_of("train", keep=keep))
        (keep / ".larder-kept").chmod(0o600)

        def read() -> None:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            assert list(data.samples_of("train", keep=keep)) == wanted

        reader = multiprocessing.get_context("fork").Process(target=read)
        reader.start()
        reader.join()
        assert reader.exitcode == 0


def read_all(samples: Any) -> list[Any]:
    return samples.batch(range(len(samples)))


@pytest.mark.push
def test_ranks_share_what_is_kept_also_within_a_narrow_limit(data, tmp_path, shard_bytes):
    wanted = list(data.samples("train"))
    keep = tmp_path / "keep"
    narrow = data.samples_of("train", keep=keep, keep_bytes=2 * shard_bytes)
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(read_all, [narrow] * 6, chunksize=1) == [wanted] * 6
    assert sum(path.stat().st_size for path in shards_in(keep)) <= 2 * shard_bytes
    assert is_clean(keep)


def test_a_shard_is_downloaded_once_by_all_threads(data, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "read_digest", reading := Mock(wraps=read_digest))
    read_all(data.samples_of("train", keep=tmp_path / "keep"))
    keys = [call.args[1] for call in reading.mock_calls]
    assert len(keys) == len(set(keys)) == SHARDS + 1, "the index, too"


def test_a_shard_that_is_not_what_was_published_is_not_kept(tmp_path):
    lab = lab_of(tmp_path)
    data = larder.open(f"{lab.storage}/larder/d")
    path = lab.files("*.tar")[2]
    flip(path)
    samples = data.samples_of("train", keep=tmp_path / "keep", check="never")
    samples[0]
    with larder_error("damage.digest") as caught:
        samples[2 * EACH]
    assert caught.value.where.endswith(str(path))


def test_a_file_system_without_locks_is_refused(data, tmp_path, monkeypatch, shard_bytes):
    def refuse(*_: object) -> None:
        raise OSError("no locks")

    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / ".larder-tmp-draft-0").write_bytes(b"")
    monkeypatch.setattr(fcntl, "flock", refuse)
    with larder_error("config.path"):
        data.samples_of("train", keep=keep, keep_bytes=shard_bytes)[0]


def checked(lab: Lab, folder: Path) -> None:
    """That a folder has what the storage has."""
    for split in lab.newest().samples:
        there = {path.name: path.read_bytes() for path in (folder / split).iterdir()}
        published = lab.files(f"segments/*/shards/{split}/*")
        assert there == {path.name: path.read_bytes() for path in published}
    assert json.loads((folder / "classes.json").read_text()) == {"a": 0, "b": 1}
    assert is_clean(folder)


SPLITS = {"training": "a/**", "validation": "b/**"}


@pytest.mark.parametrize("name", ["recordio", *at_push("webdataset", "parquet")])
def test_a_version_is_downloaded_once(tmp_path, monkeypatch, name):
    shards = {"format": name, "samples_per_shard": EACH}
    lab = lab_of(tmp_path, splits=SPLITS, shards=shards)
    data = larder.open(f"{lab.storage}/larder/d")
    folder = tmp_path / "mnt/data"
    assert data.download(folder, ["training"]) == folder
    assert not (folder / "validation").exists()
    data.download(folder)
    checked(lab, folder)
    monkeypatch.setattr(download, "read_digest", None)
    data.download(folder)


def test_what_cannot_be_downloaded_is_refused(tmp_path):
    lab = lab_of(tmp_path, splits=SPLITS, growth={"removals": "omit"})
    address = f"{lab.storage}/larder/d"
    first = larder.open(address)
    folder = tmp_path / "data"
    first.download(folder)
    with larder_error("version.split"):
        first.download(folder, ["test"])
    Path(str(lab.source), "a/00.bin").unlink()
    write(str(lab.source), {"b/zz.bin": b"new"})
    lab.prepare()
    second = larder.open(address)
    with larder_error("version.omitted"):
        second.download(folder)
    with larder_error("version.omitted"):
        second.shards("training")
    with larder_error("config.path", str(folder / "larder.json")):
        second.download(folder, ["validation"])
    flip(lab.files("segments/*/shards/training/*.tar")[0])
    with pytest.raises(DamageError):
        first.download(tmp_path / "other")
