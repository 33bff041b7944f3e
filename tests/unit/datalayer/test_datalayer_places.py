"""Where caches are, and what is refused in their place."""

import errno
import json
import os
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from required import as_root

import larder
from larder.datalayer import stored
from larder.datalayer.cache_place import place_of
from larder.datalayer.function import changes, digests
from larder.datalayer.layer_cache import FORMAT
from larder.disk import is_on_network
from larder.errors import LarderError
from larder.manifest.sealed import seal, unseal
from tests.support.errors import larder_error


def train(**options: Any) -> Any:
    return larder.cache_train_dataset("d", "v1", **options)


def read(decorate: Any = None, count: int = 4) -> list[int]:
    return [int(each) for each in (decorate or train())(lambda: range(count))()]


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "a/b", "..", ".", ".hidden", "a\\b", " a", "a ", "a\nb", "a\0", "e\u0301"),
        *("x" * 201, 1, 1.10, None, b"a", "\ud800"),
    ],
    ids=repr,
)
def test_a_name_that_is_no_folder_is_refused(name):
    with larder_error("config.invalid_value", "dataset_id"):
        larder.cache_train_dataset(name, "v1")
    with larder_error("config.invalid_value", "dataset_version"):
        larder.cache_validation_dataset("d", name)


def test_layout_and_names(storage):
    for name in ("a b", "\u00e9t\u00e9", "v1.0", "a%2Fb", "x" * 200):
        larder.cache_train_dataset(name, name)(lambda: range(4))()
        larder.cache_validation_dataset(name, name)(lambda: range(3))()
        for suffix in ("_train", "_val"):
            folder = storage / name / f"{name}{suffix}"
            (file,) = folder.glob("*.mdb")
            (named,) = json.loads((folder / "cache.json").read_text())["files"]
            assert f"{named['sha256']}.mdb" == file.name


def test_the_function_is_called_once(storage):
    calls = []

    @train()
    def make(count: int) -> range:
        """Its text."""
        calls.append(count)
        return range(count)

    assert (make.__name__, make.__doc__) == ("make", "Its text.")
    assert [*map(int, make(4))] == [*map(int, make(4))] == [0, 1, 2, 3]
    assert calls == [4]


@pytest.mark.parametrize(
    ("section", "root", "local"),
    [
        ({"type": "shared_fs", "container_storage_path": "/c"}, "/c", None),
        ({"type": "shared_fs"}, "~/data/determined", None),
        ({"type": "s3", "bucket": "b", "bucket_directory_path": "/x/y/"}, "s3://b/x/y", None),
        ({"type": "gcs", "bucket": "b", "local_cache_container_path": "/c"}, "gs://b", "/c"),
        (None, "~/data/determined", None),
    ],
    ids=str,
)
@pytest.mark.parametrize("inside", [False, True])
def test_the_storage_of_an_experiment(section, root, local, inside, monkeypatch):
    config = {"data": {"data_layer": section}} if inside else {"data_layer": section, "data": {}}
    monkeypatch.setenv("DET_EXPERIMENT_CONFIG", json.dumps(config))
    monkeypatch.delenv("LARDER_CACHE")
    place = place_of("d", "v", "_val", None, None)
    assert place.url == f"{os.path.expanduser(root)}/d/v_val"
    wanted = local or os.environ["LARDER_CACHE_DIR"]
    assert place.local == Path(wanted) / "yogadl_local_cache/d/v_val"
    monkeypatch.setenv("LARDER_CACHE", "/given")
    assert place_of("d", "v", "_val", None, None).root == "/given"
    assert place_of("d", "v", "_val", "s3://mine/", None).url == "s3://mine/d/v_val"


@pytest.mark.parametrize(
    ("section", "code", "where"),
    [
        ({"type": "hdfs"}, "config.invalid_value", "data_layer.type"),
        ({}, None, None),
        ([], None, None),
        (["s3"], "config.invalid_value", "data_layer"),
        ({"bucket": "b"}, "config.invalid_value", "data_layer.type"),
        ({"type": "s3"}, "config.invalid_value", "data_layer.bucket"),
        ({"type": "s3", "bucket": 1}, "config.invalid_value", "data_layer.bucket"),
        (
            {"type": "s3", "bucket": "b", "secret_key": "x"},
            "config.secret",
            "data_layer.secret_key",
        ),
        ({"type": "gcs", "bucket": "b", "bucket_path": "x"}, "config.unknown_key", None),
    ],
    ids=str,
)
def test_an_unusable_section_is_refused_with_the_reason(section, code, where, monkeypatch):
    monkeypatch.setenv("DET_EXPERIMENT_CONFIG", json.dumps({"data": {"data_layer": section}}))
    monkeypatch.delenv("LARDER_CACHE")
    if code is None:
        train()
        return
    with larder_error(code, where):
        train()


def test_a_storage_with_a_secret_is_refused_by_its_name(monkeypatch):
    url = "s3://user:hunter2@bucket/x"
    with larder_error("config.secret", "STORAGE"):
        place_of("d", "v", "_val", url, None)
    monkeypatch.setenv("LARDER_CACHE", url)
    with larder_error("config.secret", "LARDER_CACHE"):
        place_of("d", "v", "_val", None, None)


def test_a_cache_of_yogadl_is_refused_and_never_unpickled(storage):
    folder = storage / "d/v1_train"
    folder.mkdir(parents=True)
    (folder / "cache.mdb").write_bytes(pickle.dumps("anything"))
    with larder_error("cache.format", f"file://{folder}/cache.mdb"):
        read()


@pytest.mark.parametrize("how", ["flip", "cut", "grow", "remove"])
def test_a_damaged_file_is_refused_before_it_is_mapped(storage, how):
    assert read() == [0, 1, 2, 3]
    assert read() == [0, 1, 2, 3]
    (path,) = storage.rglob("*.mdb")
    data = path.read_bytes()
    if how == "remove":
        path.unlink()
    else:
        # LMDB's pointers stand at the beginning of its pages, as in their place in the file.
        changed = data[:8192] + bytes([data[8192] ^ 1]) + data[8193:]
        path.write_bytes({"flip": changed, "cut": data[:-1], "grow": data + b"\0"}[how])
    with larder_error("damage.digest" if how == "flip" else "damage.size", str(path)):
        read()


FILE = {"bytes": 4_096, "sha256": "0" * 64, "digest": "0" * 64, "records": 1}
LEAF = {"path": [], "dtype": "int64", "shape": [], "stored": []}


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {"files": [{**FILE, "records": 0}]},
        {"files": [{**FILE, "records": 1 << 62}]},
        {"files": [{**FILE, "bytes": 0}]},
        {"files": [{**FILE, "sha256": "../x"}]},
        {"files": [{**FILE, "file": "x.mdb"}]},
        {"kind": "pickle"},
        {"leaves": []},
        {"leaves": [LEAF, LEAF]},
        {"leaves": [{**LEAF, "dtype": "object"}]},
        {"leaves": [{**LEAF, "path": ["a"]}]},
        {"leaves": [{**LEAF, "path": ["[1]"]}]},
        {"leaves": [{**LEAF, "path": [".a"]}, {**LEAF, "path": [".a", ".b"]}]},
        {"leaves": [{**LEAF, "path": ["[0]"] * 5_000}]},
        {"leaves": [{**LEAF, "stored": [-1]}]},
        {"leaves": [{**LEAF, "stored": [2]}]},
        {"format": "x"},
        {"more": 1},
    ],
    ids=lambda change: str(change)[:60],
)
def test_a_document_of_somebody_else_is_refused(storage, change):
    read()
    path = storage / "d/v1_train/cache.json"
    path.write_bytes(seal({**unseal(path.read_bytes(), ""), **change}))
    with larder_error("damage.manifest", f"file://{path}"):
        read()
    path.write_bytes(b"{}")
    with larder_error("damage.manifest", f"file://{path}"):
        read()


def test_a_cache_of_an_older_format_is_refused_with_how_to_build_it_anew(storage):
    read()
    path = storage / "d/v1_train/cache.json"
    name, _, number = FORMAT.rpartition("-")
    older = f"{name}-{int(number) - 1}"
    path.write_bytes(seal({**unseal(path.read_bytes(), ""), "format": older}))
    with larder_error("damage.manifest", f"file://{path}") as caught:
        read()
    assert "larder cache rm" in caught.value.hint


def test_a_document_of_another_file_is_refused(storage):
    read()
    path = storage / "d/v1_train/cache.json"
    leaf = {**LEAF, "dtype": "int32"}
    path.write_bytes(seal({**unseal(path.read_bytes(), ""), "leaves": [leaf]}))
    with larder_error("damage.manifest"):
        read()


def test_a_cache_that_was_moved_to_another_name_is_refused(storage):
    read()
    shutil.copytree(storage / "d", storage / "e")
    with larder_error("cache.format"):
        larder.cache_train_dataset("e", "v1")(lambda: range(4))()
    elsewhere = storage.with_name("elsewhere")
    storage.rename(elsewhere)
    assert read(train(storage=elsewhere)) == [0, 1, 2, 3]


def test_a_changed_function_is_reported(storage, caplog):
    def made_by(constant: int, **options: Any) -> list[int]:
        @train(**options)
        def make(*arguments: int) -> range:
            return range(constant + sum(arguments))

        return [int(each) for each in make(*[1] * (constant == 9))]

    assert made_by(4) == made_by(4) == [0, 1, 2, 3]
    assert not caplog.records
    assert made_by(5) == [0, 1, 2, 3]
    assert "constant" in caplog.text
    with larder_error("cache.changed") as caught:
        made_by(9, on_change="error")
    assert "argument 0, constant" in str(caught.value)
    assert made_by(5, on_change="rebuild") == made_by(5, on_change="error") == [0, 1, 2, 3, 4]
    with larder_error("config.invalid_value", "on_change"):
        train(on_change="ignore")


SIZE = 3


def test_all_that_a_function_follows_from_is_looked_at():
    def make(path: Path, options: Any) -> Any:
        def inside() -> Any:
            return SIZE, late

        return inside

    before = digests(make, (Path("/a"), {"b": [1, (None,)]}), {"c": 1.5, "d": object()})
    assert before.keys() == {"source", "SIZE", "argument 0", "argument 1", "argument c"}
    late = "now"
    now = digests(make, (Path("/b"), {"b": [1, (2,)]}), {"c": 1.5})
    assert changes(before, now) == ["argument 0", "argument 1", "late"]
    assert digests(print, (1,), {}).keys() == {"argument 0"}
    assert digests(storage_of, (), {}).keys() == {"source"}


def storage_of(self: Any) -> None: ...


def test_a_cache_of_tensorflow_needs_tensorflow(storage, monkeypatch):
    read()
    path = storage / "d/v1_train/cache.json"
    path.write_bytes(seal({**unseal(path.read_bytes(), ""), "kind": "tensorflow"}))
    monkeypatch.setattr("larder.packages.is_installed", lambda module: False)
    with larder_error("config.missing_package"):
        read()


def test_who_has_waited_for_another_builder_reads_its_cache(monkeypatch):
    assert read() == [0, 1, 2, 3]
    answers, read_cache = iter([None]), stored.read_cache
    monkeypatch.setattr(stored, "read_cache", lambda *some: next(answers, read_cache(*some)))
    assert read(count=9) == [0, 1, 2, 3]


def test_a_function_of_another_closure_is_not_called_again():
    calls = []
    for number in range(2):
        train()(lambda number=number: calls.append(number) or [number])()
    assert calls == [0]


def test_comments_and_decorators_are_no_change(caplog):
    @train()
    def make() -> range:
        return range(4)

    first = make()

    @train(shuffle=True)
    def make() -> range:
        # Another comment,
        return range(4)

    assert sorted(make()) == list(first)
    assert not caplog.records


def test_no_value_of_the_function_is_written(storage):
    secret = "hunter2"

    @train()
    def make(token: str) -> list[int]:
        return [len(secret + token)]

    make("sesame")
    written = b"".join(path.read_bytes() for path in storage.rglob("*") if path.is_file())
    assert b"hunter2" not in written
    assert b"sesame" not in written


def test_a_storage_that_is_read_only(storage):
    read()
    subprocess.run([*as_root(), "mount", "--bind", storage, storage], check=True)
    try:
        remount = ["mount", "-o", "remount,ro,bind", storage]
        subprocess.run([*as_root(), *remount], check=True)
        assert read() == [0, 1, 2, 3]
        with larder_error("config.path", str(storage / "d/v2_train")):
            larder.cache_train_dataset("d", "v2")(lambda: range(4))()
    finally:
        subprocess.run([*as_root(), "umount", "--lazy", storage], check=True)


def test_network_file_systems_are_told_by_their_mounts(tmp_path):
    mounts = tmp_path / "mounts"
    lines = [
        "/dev/sda1 / ext4 rw 0 0",
        "host:/x /mnt/my\\040nfs nfs4 rw 0 0",
        "l /lustre lustre rw 0 0",
    ]
    mounts.write_text(
        "\n".join([*lines, "s /fuse fuse.sshfs rw 0 0", "t /lustre/tmp tmpfs rw 0 0"])
    )
    remote = ["/mnt/my nfs/a/b", "/lustre", "/fuse/x"]
    for path in remote:
        assert is_on_network(Path(path), str(mounts)), path
    for path in ("/", "/mnt", "/lustre/tmp/a", "/lustrex"):
        assert not is_on_network(Path(path), str(mounts)), path
    assert not is_on_network(Path("/"), str(tmp_path / "none"))


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOSPC])
def test_a_file_that_cannot_be_renamed_is_one_error(monkeypatch, number):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(LarderError):
            read()
    assert read() == [0, 1, 2, 3]
