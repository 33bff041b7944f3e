"""Images in complete runs: the limit on pixels, forms that one cache cannot hold, transforms."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import png_of, saved, tiff_file
from PIL import Image
from pipeline_lab import Lab, contents, directory_lab, failed, images, png, shard_names, write
from pydantic import ValidationError

import larder
from larder.config.models.dataset import Cache
from larder.config.shape import Transform
from larder.segments import image_rules, pack, shard
from larder.shards.images.transform import codec_versions
from larder.versions.publish import read_segment
from tests.support.checker import Published
from tests.support.errors import larder_error
from tests.support.runs import between
from tests.support.stores import Recorder

pytestmark = pytest.mark.push

WORDS = png_of(np.arange(63, dtype=np.uint16).reshape(7, 9) * 999, 0)
FLOATS = tiff_file(np.ones((7, 9), np.float32))
LARGE = {"b/90.png": png(90, 40, 30), "c/91.png": png(91, 60, 50)}


def test_a_lower_limit_checks_again_and_a_higher_one_tries_again(tmp_path):
    lab = directory_lab(tmp_path, images() | LARGE, on_bad_sample="skip", cache=None)
    assert lab.prepare()["skipped"] == 0
    lower = {"images": {"max_pixels": 1_200}}
    growth = lab.plan(**lower)["growth"]
    assert growth["decision"] == "fresh"
    assert lab.prepare(**lower)["skipped"] == 1
    assert lab.plan(**lower)["status"] == "reused"
    higher = {"images": {"max_pixels": 3_000}}
    growth = lab.plan(**higher)["growth"]
    assert (growth["decision"], growth["samples"]["added"]) == ("grow", 1)
    assert lab.prepare(**higher)["skipped"] == 0
    lab.check()


@pytest.mark.parametrize("batch_bytes", [1, 10**9], ids=["many batches", "one batch"])
@pytest.mark.parametrize("skip", ["fail", "skip"])
def test_images_that_one_cache_cannot_hold_are_found_while_sharding(tmp_path, batch_bytes, skip):
    odd = {"a/00.seg.png": WORDS, "b/50.png": WORDS, "b/51.png": WORDS, "c/52.tif": FLOATS}
    cluster = {"runner": {"batch_bytes": batch_bytes, "workers": 2}}
    lab = directory_lab(tmp_path, images() | odd, cluster=cluster, on_bad_sample=skip)
    assert failed(lab) == ["b/50.png", "c/52.tif"]
    with lab.opened_root() as root:
        keys = [info.key for page in root.list() for info in page]
        assert not any("/caches/" in key or "/index/rows-" in key for key in keys)
    assert lab.prepare(cache={"records": "encoded"})["status"] == "built"
    lab.check()


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_images_of_any_size_get_one_shape(mode, tmp_path):
    grey = saved(Image.fromarray(np.arange(63, dtype=np.uint8).reshape(7, 9)), "PNG")
    mask = saved(Image.fromarray(np.arange(99, dtype=np.uint16).reshape(9, 11)), "PNG")
    parts = {f"{name}.mask.png": mask for name in ("b/90", "c/91")}
    lab = directory_lab(
        tmp_path, images() | LARGE | parts | {"a/80.png": grey}, decoding={"mask.png": "mask"}
    )
    resized: dict[str, Any] = {"records": "decoded", "images": {"resize": [6, 8], "mode": mode}}
    plan = lab.plan(cache=resized)
    channels, count = (
        (3 if mode == "RGB" else 1),
        len([*Path(lab.source).rglob("*.png")]) - len(parts),
    )
    others = sum(path.stat().st_size for path in Path(lab.source).rglob("*.json"))
    sizes = plan["cache_bytes"]
    assert sizes["resized"] == 48 * (count * channels + len(parts)) + others
    assert sizes["decoded"] - others == 2 * (sizes["encoded"] - others)
    plain = lab.prepare()
    assert lab.prepare(cache=resized)["version"] != plain["version"]
    cache = larder.open(f"{lab.storage}/larder/d").cache("train")
    batch = cache.batch(range(len(cache)))
    assert batch["image"].shape == (count, 6, 8, channels)
    assert {each.shape for each in batch["image.mask"] if each is not None} == {(6, 8, 1)}
    assert {each.dtype.name for each in batch["image.mask"] if each is not None} == {"uint16"}
    write(tmp_path / "source", {"a/81.png": png(81, 33, 21)})
    lab.prepare(cache=resized)
    cache = larder.open(f"{lab.storage}/larder/d").cache("train")
    assert cache.batch([0, len(cache) - 1])["image"].shape == (2, 6, 8, channels)
    lab.check()


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        ({"images": {"resize": [6, 8]}}, "only for decoded images"),
        ({"records": "decoded", "images": {"resize": [6]}}, "resize"),
        ({"records": "decoded", "images": {"resize": [6, 0]}}, "resize"),
        ({"records": "decoded", "images": {"resize": [6, 8], "mode": "CMYK"}}, "mode"),
        ({"records": "decoded", "images": {}}, "resize"),
    ],
)
def test_what_a_shape_may_not_be(cache, message):
    with pytest.raises(ValidationError, match=message):
        Cache.model_validate(cache)


def test_a_new_segment_is_compared_with_those_beside_it(tmp_path):
    lab = directory_lab(tmp_path, images())
    first = lab.prepare()
    write(tmp_path / "source", {"a/80.png": WORDS})
    assert failed(lab) == ["a/80.png"]
    write(tmp_path / "source", {"a/80.png": png(80)})
    assert lab.prepare()["version"] != first["version"]
    lab.check()


def test_a_run_that_was_stopped_says_the_same(tmp_path):
    """What was noted before is in the receipts."""
    cluster = {"runner": {"batch_bytes": 1}}
    lab = directory_lab(tmp_path, images() | {"b/50.png": WORDS}, cluster=cluster)
    once = failed(lab)
    with between(recorder := Recorder()):
        assert failed(lab) == once
    writes = [call.key for call in recorder.writes]
    assert not any(key.endswith(".tar") for key in writes)


TRANSFORM = {"resize": 16, "quality": 90}


def photo(seed: int, width: int = 60, height: int = 40) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), np.uint8)
    image = Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)
    return saved(image, "JPEG", quality=95)


def transform_lab(tmp_path: Path, **fields: Any) -> Lab:
    shards = {"bytes": 8_000, "images": TRANSFORM}
    photos = {f"{'ab'[number % 2]}/{number:02}.jpg": photo(number) for number in range(8)}
    photos |= {"a/00.json": b"{}", "b/91.png": png(91, 30, 20)}
    return directory_lab(tmp_path, photos, **{"shards": shards, "cache": None, **fields})


def sizes(published: Published) -> dict[str, tuple[str | None, tuple[int, int]]]:
    found = {}
    for samples in published.samples.values():
        for sample in samples:
            for ext, data in sample.parts.items():
                if ext in ("jpg", "png"):
                    with Image.open(io.BytesIO(data)) as image:
                        found[f"{sample.key}.{ext}"] = image.format, image.size
    return found


def test_images_are_resized_and_encoded_again(tmp_path):
    lab = transform_lab(tmp_path)
    document = lab.plan()
    assert document["shards"]["exact"] is False
    assert document["shards"]["images"]["codecs"] == codec_versions()
    assert lab.prepare()["status"] == "built"
    published = lab.only()
    found = sizes(published)
    assert found == {f"{'ab'[n % 2]}/{n:02}.jpg": ("JPEG", (24, 16)) for n in range(8)} | {
        "b/91.png": ("PNG", (24, 16))
    }
    with lab.opened_root() as root:
        segment = read_segment(root, published.version.segments[0].id)
    assert segment is not None
    transform = segment.shape.images.transform
    assert transform == Transform(**TRANSFORM, codecs=codec_versions())


def test_growth_transforms_what_is_new_and_nothing_twice(tmp_path):
    lab = transform_lab(tmp_path)
    lab.prepare()
    before = contents(lab.only())
    write(tmp_path / "source", {"a/80.jpg": photo(80)})
    (tmp_path / "source" / "a" / "00.jpg").touch()  # its etag changes, its content does not
    (tmp_path / "source" / "b" / "01.jpg").unlink()
    growth = lab.plan()["growth"]
    assert growth["decision"] == "grow"
    assert growth["samples"] == {
        "added": 1, "changed": 0, "relabelled": 0, "moved": 0, "removed": 1, "unchanged": 8,
        "bad": 0,
    }  # fmt: skip
    assert growth["packed"]["count"] > 0
    assert growth["read"]["count"] == 1
    lab.prepare()
    after = contents(lab.newest())
    del before["train", "b/01"]
    assert {key: after[key] for key in before} == before
    assert after.keys() - before.keys() == {("train", "a/80")}
    assert lab.plan()["status"] == "reused"


def test_other_libraries_make_new_segments_and_transform_the_originals(tmp_path, monkeypatch):
    """What is packed again must be what a first build with these libraries would make."""
    lab = transform_lab(tmp_path)
    lab.prepare()
    (tmp_path / "source" / "a" / "04.jpg").unlink()
    other = {**codec_versions(), "pillow": "99.0"}
    for module in (image_rules, shard):
        monkeypatch.setattr(module, "codec_versions", lambda: other)
    growth = lab.plan()["growth"]
    assert growth["decision"] == "grow"
    assert growth["packed"]["count"] == 0
    assert growth["read"]["count"] > 0
    lab.prepare()
    with lab.opened_root() as root:
        found = [read_segment(root, use.id) for use in lab.newest().version.segments]
    pillows = [segment.shape.images.transform.codecs["pillow"] for segment in found]
    assert pillows == [codec_versions()["pillow"], "99.0"]


def test_a_machine_with_other_libraries_writes_nothing(tmp_path, monkeypatch):
    lab = transform_lab(tmp_path)
    monkeypatch.setattr(pack, "image_options", lambda dataset: dataset.image_options)
    with larder_error("run.failed"):
        lab.prepare()


def test_a_compaction_makes_what_a_first_build_makes(tmp_path):
    lab = transform_lab(tmp_path)
    lab.prepare()
    write(tmp_path / "source", {"a/80.jpg": photo(80)})
    lab.prepare()
    lab.compact()
    fresh = replace(lab, storage=str(tmp_path / "fresh"))
    fresh.prepare()
    assert shard_names(lab.newest()) == shard_names(fresh.only())
