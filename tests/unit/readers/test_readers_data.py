"""larder.open, on a version in a directory and in memory."""

import io
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image
from pipeline_lab import Lab, directory_lab, images, png, write

import larder
from larder.cache.schema import Field, RecordSchema
from larder.errors import FatalError, LarderError
from larder.readers.cache_reader import _joined
from larder.store import open_store
from larder.versions import layout
from tests.support.checker import Published
from tests.support.errors import larder_error
from tests.support.memory import forget
from tests.support.processes import run_python

SPLITS = {"train": "a/**", "validation": "b/**"}
OTHER = "f" * 32


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = directory_lab(tmp_path_factory.mktemp("data"), images("ab", 5), splits=SPLITS)
    lab.prepare()
    shutil.copy(lab.folder / layout.tag_key("latest"), lab.folder / layout.tag_key("v1"))
    return lab


@pytest.fixture(scope="module")
def published(lab: Lab) -> Published:
    return lab.newest()


@pytest.fixture
def id_(published):
    return published.version.id


@pytest.fixture(params=["path", "memory"])
def toy(request, lab, tmp_path, monkeypatch):
    """The URL of a copy, which a test may change."""
    monkeypatch.setenv("LARDER_CACHE_DIR", str(tmp_path / "downloads"))
    url = "memory://data/larder/d" if request.param == "memory" else f"{tmp_path}/larder/d"
    write(url, {str(path.relative_to(lab.folder)): path.read_bytes() for path in lab.files("*")})
    yield url
    forget("data")


@pytest.mark.parametrize(
    "name", ["", "@latest", "@v1", "@{id}", "@{id:.4}", "/versions/{id}", "/", "@v1/"]
)
def test_a_version_opens_by_every_name(toy, published, id_, name):
    data = larder.open(toy + name.format(id=id_))
    digest = published.version.digest
    assert (data.dataset, data.version, data.digest) == ("d", id_, digest)
    assert data.classes == ("a", "b")
    assert {split: facts.samples for split, facts in data.splits.items()} == dict.fromkeys(
        SPLITS, 5
    )
    shards = [f"{toy}/{key}" for key in published.shards]
    assert data.shards("train") + data.shards("validation") == shards


def test_the_cache_reads_as_numpy(toy, published, tmp_path):
    with larder.open(toy).cache("train", verify=True) as cache:
        wanted = [
            np.asarray(Image.open(io.BytesIO(sample.parts["png"])))
            for sample in published.samples["train"]
        ]
        assert np.array_equal(cache.batch([3, -1])["image"], [wanted[3], wanted[4]])
        assert np.array_equal([record["image"] for record in cache], wanted)
        with pytest.raises(TypeError):
            cache.batch([True])
        with pickle.loads(pickle.dumps(cache)) as copy:
            assert np.array_equal(copy[4]["image"], wanted[4])
    assert (tmp_path / "downloads").exists() == toy.startswith("memory:")
    assert pickle.loads(pickle.dumps(larder.open(toy))).version == larder.open(toy).version


def test_unknown_names_are_refused(toy, id_):
    for address in (f"{toy}@v9", f"{toy}@{OTHER}", f"{toy}x", f"{toy}@{id_[:3]}"):
        with larder_error("version.missing"):
            larder.open(address)
    with pytest.raises(LarderError, match="did you mean latest"):
        larder.open(f"{toy}@latets")
    data = larder.open(toy)
    for call in (data.shards, data.cache):
        with larder_error("version.split"):
            call("test")


def test_digits_with_which_two_versions_begin_are_refused(toy, id_):
    other = f"{id_[:-1]}{'1' if id_[-1] == '0' else '0'}"
    open_store(toy).put(layout.version_key(other), b"{}")
    with larder_error("version.ambiguous") as caught:
        larder.open(f"{toy}@{id_[:5]}")
    assert other in caught.value.message
    assert larder.open(f"{toy}@{id_}").version == id_


OTHER_ADDRESSES = """
toy s3://bucket/toy s3://bucket/larder/ xlarder/toy /larder/ a/larder/toy@ a/larder/toy@a/b
a/larder/toy@../x a/larder/toy/versions/v1 a/larder/TOY
"""


@pytest.mark.parametrize("url", ["", "a/larder/to y", *OTHER_ADDRESSES.split()])
def test_other_addresses_are_refused(url):
    with larder_error("config.invalid_value"):
        larder.open(url)


def test_a_changed_document_or_cache_is_damage(toy, published, id_):
    store = open_store(toy)
    path = published.version.cache.splits["train"][0].path
    store.put(path, bytes(store.get(path))[:-1])
    with larder_error("damage.size"):
        larder.open(toy).cache("train")
    data = bytes(store.get(layout.version_key(id_)))
    store.put(layout.version_key(id_), data.replace(b'"decoded"', b'"encoded"'))
    with larder_error("damage.digest"):
        larder.open(toy)
    store.put(layout.version_key(OTHER), data)
    with larder_error("damage.manifest"):
        larder.open(f"{toy}@{OTHER}")
    store.put(layout.tag_key("v1"), data)
    with larder_error("damage.manifest"):
        larder.open(f"{toy}@v1")


def test_files_of_other_shapes_make_ragged_fields(tmp_path):
    objects = {f"a/{n}.png": png(n) for n in range(3)}
    lab = directory_lab(tmp_path, objects, growth={"removals": "omit"})
    lab.prepare()
    lab.remove("a/0.png")
    lab.add({"a/9.png": png(9, width=5), "a/9.json": b"{}"})
    lab.prepare()
    with larder.open(str(lab.folder)).cache("train") as cache:
        fields = {field.name: field for field in cache.schema.fields}
        assert fields["image"] == Field("image", "uint8", (7, None, 3))
        assert fields["json"].optional
        batch = cache.batch([2, 0])
        for records in (cache, [cache[number] for number in range(3)]):
            assert [record["image"].shape[1] for record in records] == [9, 9, 5]
    assert [array.shape for array in batch["image"]] == [(7, 5, 3), (7, 9, 3)]
    assert [note is None for note in batch["json"]] == [False, True]


def test_files_of_other_kinds_are_refused():
    schemas = [RecordSchema((Field("x", dtype),)) for dtype in ("int32", "int64")]
    with pytest.raises(FatalError):
        _joined(*schemas, "a.mdb")


BLOCKED = "prefect pyarrow pydantic yaml boto3 botocore PIL tensorflow rich"
READ = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        assert name.partition(".")[0] not in {BLOCKED.split()!r}, name

sys.meta_path.insert(0, Blocker())
import larder
assert "numpy" not in sys.modules, "importing larder costs nothing"
for address in sys.argv[1:]:
    data = larder.open(address)
    assert len(data.cache("train", verify=True).batch([1])["image"]) == 1
"""


def test_reading_needs_the_base_packages_alone(lab):
    done = run_python("-c", READ, str(lab.folder), f"file://{lab.folder}@latest")
    assert done.returncode == 0, done.stderr
