from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_shelf import Shelf
from image_files import saved
from PIL import Image

from larder.cache.fields import field_name
from larder.cache.file import CacheFileReader, open_file
from larder.cache.from_samples import CacheInput, build_samples
from larder.cache.schema import Field
from larder.errors import LarderError
from tests.support.budgets import WatchedBudget

AMPLE_BYTES = 1 << 30


def png(height: int, width: int, channels: int = 1, value: int = 7) -> bytes:
    array = np.full((height, width, channels), value, np.uint8)
    return saved(Image.fromarray(array[:, :, 0] if channels == 1 else array))


def built(shelf: Shelf, kind: Any, tmp_path: Path, **options: Any) -> CacheFileReader:
    path = tmp_path / f"{kind}.mdb"
    facts = build_samples(shelf.samples(kind), path, limit_bytes=AMPLE_BYTES, **options)
    return open_file(path, facts, verify=True)


def refused(shelf: Shelf, kind: Any, tmp_path: Path) -> LarderError:
    with pytest.raises(LarderError) as caught:
        build_samples(shelf.samples(kind), tmp_path / "x.mdb", limit_bytes=AMPLE_BYTES)
    assert list(tmp_path.iterdir()) == []
    return caught.value


@pytest.fixture
def labelled(shelf: Shelf) -> Shelf:
    for shard in range(3):
        shelf.add_shard(
            f"{shard}.tar",
            [
                (f"a/{shard}{n}", n % 2, {"cls": b"%d" % (n % 2), "png": png(8, 8, 1, n)})
                for n in range(4)
            ],
        )
    return shelf


def test_every_shard_is_read_once_in_one_pass(labelled, tmp_path):
    opened: list[str] = []

    def noted(name: str) -> Any:
        opened.append(name)
        return labelled.open_shard(name)

    for kind in ("encoded", "decoded"):
        samples = CacheInput(labelled.batches, noted, kind)
        build_samples(samples, tmp_path / f"{kind}.mdb", limit_bytes=AMPLE_BYTES)
    once = ["0.tar", "1.tar", "2.tar"]
    # The first image of all says what shape to begin with.
    assert opened == [*once, "0.tar", *once]


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ([(8, 8, 3), (8, 8, 3)], (8, 8, 3)),
        ([(8, 8, 3), (8, 9, 3)], (8, None, 3)),
        ([(8, 8, 3), (8, 8, 3), (7, 8, 3), (8, 9, 3)], (None, None, 3)),
        ([(8, 8, 1), (8, 8, 1)], (8, 8, 1)),
        ([(8, 8, 1), (8, 8, 3), (8, 8, 1)], (8, 8, 3)),
        ([(8, 8, 3), (5, 8, 1)], (None, 8, 3)),
    ],
)
def test_the_shape_is_the_narrowest_that_fits(shelf, tmp_path, sizes, shape):
    samples = [(str(n), None, {"png": png(*size, n + 1)}) for n, size in enumerate(sizes)]
    shelf.add_shard("a", samples)
    with built(shelf, "decoded", tmp_path) as part:
        assert part.schema.fields[0] == Field("image", "uint8", shape)
        for n, (record, size) in enumerate(zip(part, sizes, strict=True)):
            wanted = np.full((*size[:2], shape[2]), n + 1, np.uint8)
            np.testing.assert_array_equal(record["image"], wanted)


def test_parts_that_some_samples_do_not_have_are_optional(shelf, tmp_path):
    shelf.add_shard("a", [("x", 1, {"jpg": png(2, 2)}), ("y", None, {"json": b"{}"})])
    with built(shelf, "decoded", tmp_path) as part:
        assert [(field.name, field.optional) for field in part.schema.fields] == [
            ("label", True),
            ("image", True),
            ("json", True),
            ("key", False),
        ]
        assert part[0].keys() == {"label", "image", "key"}
        assert part[1].keys() == {"json", "key"}


def test_samples_without_labels_or_images(shelf, tmp_path):
    shelf.add_shard(
        "a", [("größe", None, {"txt": b"hello", "cls": b"5"}), ("b", None, {"txt": b""})]
    )
    for kind in ("encoded", "decoded"):
        with built(shelf, kind, tmp_path) as part:
            assert part.schema.names == ("cls", "txt", "key")
            assert bytes(part[0]["txt"]) == b"hello"
            assert bytes(part[0]["cls"]) == b"5"
            assert bytes(part[0]["key"]).decode() == "größe"
            assert part[1]["txt"].size == 0


def test_an_empty_split(shelf, tmp_path):
    with built(shelf, "decoded", tmp_path) as part:
        assert len(part) == 0
        assert part.schema.names == ("key",)


@pytest.mark.parametrize(
    ("ext", "encoded", "decoded"),
    [
        ("jpg", "jpg", "image"),
        ("seg.png", "seg.png", "image.seg"),
        ("json", "json", "json"),
        *((own, f"part.{own}", f"part.{own}") for own in ("label", "key", "image", "part.key")),
        ("image.txt", "part.image.txt", "part.image.txt"),
        ("image.png", "part.image.png", "image.image"),
    ],
)
def test_parts_called_like_our_fields_have_other_names(ext, encoded, decoded):
    assert field_name(ext, "encoded") == encoded
    assert field_name(ext, "decoded") == decoded


@pytest.mark.parametrize("data", [b"", b"text", png(40, 40, 3)[:60]])
def test_an_undecodable_image_is_named(shelf, tmp_path, data):
    shelf.add_shard("a", [("x", None, {"png": png(40, 40)}), ("y", None, {"png": data})])
    error = refused(shelf, "decoded", tmp_path)
    assert error.code == "sample.undecodable"
    assert "shards/a: y.png" in error.where


def test_a_changed_byte_of_a_shard_is_damage(labelled, tmp_path):
    data = bytearray(labelled.store.get("shards/1.tar"))
    data[labelled.rows[6]["parts"][1]["offset"] + 30] ^= 1
    labelled.store.put("shards/1.tar", data)
    error = refused(labelled, "encoded", tmp_path)
    assert (error.code, error.exit_status) == ("damage.record", 4)
    assert error.where.endswith("shards/1.tar: a/12.png")


def test_an_index_that_goes_back_is_damage(labelled, tmp_path):
    labelled.rows[0], labelled.rows[1] = labelled.rows[1], labelled.rows[0]
    assert refused(labelled, "encoded", tmp_path).code == "damage.manifest"


@pytest.mark.parametrize("window_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("threads", [1, 3])
def test_limits_do_not_change_the_bytes(labelled, tmp_path, threads, window_bytes):
    options: dict[str, Any] = {"limit_bytes": AMPLE_BYTES}
    plain = build_samples(labelled.samples("decoded"), tmp_path / "a.mdb", **options)
    budget = WatchedBudget(window_bytes)
    options |= {"threads": threads, "budget": budget}
    assert build_samples(labelled.samples("decoded"), tmp_path / "b.mdb", **options) == plain
    assert 0 < budget.most <= window_bytes
    assert budget.held == 0
