"""larder.open, on versions written by hand."""

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import larder
from larder.cache.build import build_file
from larder.cache.record import Codec
from larder.cache.schema import Field, RecordSchema
from larder.errors import FatalError, LarderError
from larder.manifest.sealed import seal
from larder.readers.data import Data
from larder.store import open_store
from larder.versions import layout
from larder.versions.documents import CacheFacts, CacheFile, SegmentUse, SplitFacts, VersionDocument
from larder.versions.tags import Tag
from tests.support.errors import larder_error
from tests.support.memory import forget
from tests.support.processes import run_python

ID = "0123456789abcdef" * 2
OTHER = "f" * 32
SEGMENT = "5" * 32
CACHE = f"segments/{SEGMENT}/caches/{'c' * 32}"


def write_part(folder: Path, name: str, records: int, **options: Any) -> CacheFile:
    size = options.get("size", 4)
    extra = (Field("note", "uint8", (None,)),) if options.get("note") else ()
    schema = RecordSchema(
        (Field("label", options.get("dtype", "int64")), Field("x", "int32", (size,)), *extra)
    )
    start = options.get("start", 0)
    rows = (
        {
            "label": np.dtype(schema.fields[0].dtype).type(start + n),
            "x": np.full(size, start + n, np.int32),
            **({"note": b"n"} if extra else {}),
        }
        for n in range(records)
    )
    encoded = Codec(schema).encode_each(rows)
    facts = build_file(encoded, schema, folder / name, limit_bytes=1 << 20)
    digests = facts.sha256, facts.digest
    path = f"{CACHE}/{name}"
    return CacheFile(path, facts.bytes, *digests, facts.records, segment=SEGMENT, split="train")


def document(cache: CacheFacts | None, **changes: Any) -> VersionDocument:
    pattern = f"segments/{SEGMENT}/shards/train/toy-train-{{000000..000002}}.tar"
    samples = sum(file.records for file in cache.splits["train"]) if cache else 10
    one = f"segments/{SEGMENT}/shards/validation/toy-validation-000000.tar"
    return replace(
        VersionDocument(
            dataset="toy",
            id=ID,
            digest="d" * 64,
            inputs="1" * 64,
            segments=(SegmentUse(SEGMENT),),
            splits={
                "train": SplitFacts(samples, 3, 30_720, (pattern,)),
                "validation": SplitFacts(1, 1, 10_240, (one,)),
            },
            classes=("cat", "dog"),
            files=(),
            cache=cache,
        ),
        **changes,
    )


def publish(url: str, version: VersionDocument, parts: Path) -> None:
    store = open_store(url)
    for entries in (version.cache.splits if version.cache else {}).values():
        for part in entries:
            store.put(part.path, (parts / Path(part.path).name).read_bytes())
    store.put(layout.version_key(version.id), seal(version))
    store.put(layout.tag_key("latest"), seal(Tag(version.id, version.inputs)))
    store.put(layout.tag_key("v1"), seal(Tag(version.id, version.inputs)))


@pytest.fixture(params=["path", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield f"{tmp_path}/local" if request.param == "path" else "memory://data"
    forget("data")


@pytest.fixture
def toy(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LARDER_CACHE_DIR", str(tmp_path / "downloads"))
    url = f"{root}/larder/toy"
    part = write_part(tmp_path, "train.mdb", 10)
    publish(url, document(CacheFacts("decoded", {"train": (part,)})), tmp_path)
    return url


@pytest.mark.parametrize("name", ["", "@latest", "@v1", f"@{ID}", f"/versions/{ID}", "/", "@v1/"])
def test_a_version_opens_by_every_name(toy, name):
    data = larder.open(toy + name)
    assert (data.dataset, data.version, data.digest) == ("toy", ID, "d" * 64)
    assert data.classes == ("cat", "dog")
    assert {split: facts.samples for split, facts in data.splits.items()} == {
        "train": 10,
        "validation": 1,
    }
    folder = f"{toy}/segments/{SEGMENT}/shards"
    assert data.shards("train") == [f"{folder}/train/toy-train-00000{n}.tar" for n in range(3)]
    assert data.shards("validation") == [f"{folder}/validation/toy-validation-000000.tar"]


def test_the_cache_reads_as_numpy(toy, tmp_path):
    with larder.open(toy).cache("train", verify=True) as cache:
        assert len(cache) == 10
        batch = cache.batch([3, -1])
        assert batch["label"].tolist() == [3, 9]  # type: ignore[union-attr]
        assert batch["x"].tolist() == [[3] * 4, [9] * 4]  # type: ignore[union-attr]
        assert [int(record["label"]) for record in cache] == list(range(10))
        cache.verify()
    assert (tmp_path / "downloads").exists() == toy.startswith("memory:")


def test_data_and_caches_are_pickled(toy):
    data = pickle.loads(pickle.dumps(larder.open(toy)))
    with data.cache("train") as cache, pickle.loads(pickle.dumps(cache)) as copy:
        assert copy[4]["label"] == 4


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(LarderError) as caught:
        call(*arguments)
    return caught.value.code


def test_unknown_names_are_refused(toy):
    for address in (f"{toy}@v9", f"{toy}@{OTHER}", f"{toy}x"):
        assert refusal(larder.open, address) == "version.missing"
    with pytest.raises(LarderError, match="did you mean latest"):
        larder.open(f"{toy}@latets")
    data = larder.open(toy)
    for call in (data.shards, data.cache):
        assert refusal(call, "test") == "version.split"
    assert refusal(data.cache, "validation") == "cache.missing"


def test_the_first_digits_of_an_id_name_its_version(toy):
    assert larder.open(f"{toy}@{ID[:4]}").version == ID
    assert refusal(larder.open, f"{toy}@{ID[:3]}") == "version.missing"
    open_store(toy).put(layout.version_key(f"{ID[:-1]}0"), b"{}")
    with pytest.raises(LarderError, match=f"2 versions begin with {ID[:5]}: {ID[:-1]}0"):
        larder.open(f"{toy}@{ID[:5]}")
    assert refusal(larder.open, f"{toy}@{ID[:5]}") == "version.ambiguous"
    assert larder.open(f"{toy}@{ID}").version == ID


OTHER_ADDRESSES = """
toy s3://bucket/toy s3://bucket/larder/ xlarder/toy /larder/ a/larder/toy@ a/larder/toy@a/b
a/larder/toy@../x a/larder/toy/versions/v1 a/larder/TOY
"""


@pytest.mark.parametrize("url", ["", "a/larder/to y", *OTHER_ADDRESSES.split()])
def test_other_addresses_are_refused(url):
    with larder_error("config.invalid_value"):
        larder.open(url)


def test_a_changed_document_is_damage(toy):
    store = open_store(toy)
    data = bytes(store.get(layout.version_key(ID)))
    store.put(layout.version_key(ID), data.replace(b"cat", b"cow"))
    assert refusal(larder.open, toy) == "damage.digest"
    store.put(layout.version_key(OTHER), data)
    assert refusal(larder.open, f"{toy}@{OTHER}") == "damage.manifest"
    store.put(layout.tag_key("v1"), seal({"other": 1}))
    assert refusal(larder.open, f"{toy}@v1") == "damage.manifest"


def test_a_changed_cache_is_damage(toy):
    store = open_store(toy)
    store.put(f"{CACHE}/train.mdb", bytes(store.get(f"{CACHE}/train.mdb"))[:-1])
    assert refusal(larder.open(toy).cache, "train") == "damage.size"


def published(tmp_path: Path, *parts: CacheFile) -> Data:
    url = f"{tmp_path}/larder/toy"
    publish(url, document(CacheFacts("decoded", {"train": parts})), tmp_path)
    return larder.open(url)


def test_parts_of_other_shapes_make_ragged_fields(tmp_path):
    parts = (
        write_part(tmp_path, "a.mdb", 2),
        write_part(tmp_path, "b.mdb", 2, start=2, size=5, note=True),
    )
    with published(tmp_path, *parts).cache("train") as cache:
        assert cache.schema.fields[1] == Field("x", "int32", (None,))
        assert cache.schema.fields[2] == Field("note", "uint8", (None,), optional=True)
        batch = cache.batch([3, 0])
        assert [array.shape for array in batch["x"]] == [(5,), (4,)]
        assert [note is None for note in batch["note"]] == [False, True]


def test_parts_of_other_kinds_are_refused(tmp_path):
    parts = (write_part(tmp_path, "a.mdb", 1), write_part(tmp_path, "b.mdb", 1, dtype="int32"))
    with pytest.raises(FatalError):
        published(tmp_path, *parts).cache("train")


BLOCKED = "prefect pyarrow pydantic yaml boto3 botocore PIL tensorflow rich"
READ = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] not in {BLOCKED.split()!r}, name

sys.meta_path.insert(0, Blocker())
import larder
assert "numpy" not in sys.modules, "importing larder costs nothing"
data = larder.open(sys.argv[1])
assert len(data.shards("train")) == 3
assert data.cache("train", verify=True).batch([1])["label"].tolist() == [1]
"""


def test_reading_needs_the_base_packages_alone(tmp_path):
    published(tmp_path, write_part(tmp_path, "train.mdb", 3))
    url = f"{tmp_path}/larder/toy"
    for address in (url, f"file://{url}@latest"):
        done = run_python("-c", READ, address)
        assert done.returncode == 0, done.stderr
