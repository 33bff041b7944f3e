"""Images in complete runs: the limit on pixels, forms that one cache cannot hold, transforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import png_of, tiff_file
from pipeline_lab import Lab, directory_lab, images, png, write
from pydantic import ValidationError

from larder.config.models import Dataset
from larder.pipeline.results import RunError
from larder.store.base import Store
from larder.testing.recording import RecordingStore
from larder.testing.runs import between

WORDS = png_of(np.arange(63, dtype=np.uint16).reshape(7, 9) * 999, 0)
FLOATS = tiff_file(np.ones((7, 9), np.float32))
LARGE = {"b/90.png": png(90, 40, 30), "c/91.png": png(91, 60, 50)}


def failed(lab: Lab, **fields: Any) -> dict[str, str]:
    """By key, the messages of the samples that a run failed for."""
    with pytest.raises(RunError) as caught:
        lab.prepare(**fields)
    return {failure.key: failure.message for failure in caught.value.report.failures}


@pytest.mark.parametrize("memory_bytes", ["1 MiB", "64 MiB"], ids=["streamed", "whole"])
def test_images_with_too_many_pixels_are_all_named(tmp_path: Path, memory_bytes: str) -> None:
    large = {f"a/{number}.png": png(number, 300, 200) for number in range(3)}  # 180 KB
    cluster = {"copy": {"memory_bytes": memory_bytes}, "runner": {"batch_bytes": 200_000}}
    lab = directory_lab(tmp_path, images() | large, cluster=cluster, validate="header", cache=None)
    found = failed(lab, images={"max_pixels": 59_999})
    assert found.keys() == large.keys()
    assert found["a/0.png"] == (
        "a/0.png: the image cannot be decoded: it has more than 59,999 pixels, the limit in"
        " images.max_pixels; fix or exclude it, or set on_bad_sample: skip"
    )
    assert lab.prepare(images={"max_pixels": 60_000})["status"] == "built"


def test_a_lower_limit_checks_again_and_a_higher_one_tries_again(tmp_path: Path) -> None:
    lab = directory_lab(tmp_path, images() | LARGE, on_bad_sample="skip", cache=None)
    assert lab.prepare()["skipped"] == 0
    lower = {"images": {"max_pixels": 1_200}}
    growth = lab.plan(**lower)["growth"]
    assert (growth["decision"], growth["reason"]) == ("fresh", "images.max_pixels was 178,956,970")
    assert lab.prepare(**lower)["skipped"] == 1
    assert lab.plan(**lower)["status"] == "reused"
    higher = {"images": {"max_pixels": 3_000}}
    growth = lab.plan(**higher)["growth"]
    assert (growth["decision"], growth["samples"]["added"]) == ("grow", 1)
    assert lab.prepare(**higher)["skipped"] == 0
    lab.check()


def test_a_limit_that_nothing_is_above_changes_no_sample(tmp_path: Path) -> None:
    lab = directory_lab(tmp_path, images(), cache=None)
    first = lab.prepare()
    again = lab.prepare(images={"max_pixels": 200_000_000})
    assert again["version"] == first["version"]
    lab.check()


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "many", 10**13])
def test_limits_that_are_none(tmp_path: Path, value: object) -> None:
    lab = directory_lab(tmp_path, {})
    with pytest.raises(ValidationError, match=r"images\.max_pixels"):
        lab.settings(images={"max_pixels": value})


@pytest.mark.parametrize("batch_bytes", [1, 10**9], ids=["many batches", "one batch"])
@pytest.mark.parametrize("skip", ["fail", "skip"])
def test_images_that_one_cache_cannot_hold_are_found_while_sharding(
    tmp_path: Path, batch_bytes: int, skip: str
) -> None:
    odd = {"a/00.seg.png": WORDS, "b/50.png": WORDS, "b/51.png": WORDS, "c/52.tif": FLOATS}
    cluster = {"runner": {"batch_bytes": batch_bytes, "workers": 2}}
    lab = directory_lab(tmp_path, images() | odd, cluster=cluster, on_bad_sample=skip)
    assert failed(lab) == {
        "b/50.png": "b/50.png: it decodes to uint16, like 2 images, but a/00.png to uint8, which"
        " one cache cannot hold",
        "c/52.tif": "c/52.tif: it decodes to float32, like 1 image, but a/00.png to uint8, which"
        " one cache cannot hold",
    }
    with lab.opened_root() as root:
        keys = [info.key for page in root.list() for info in page]
        assert not any("/caches/" in key or key.endswith("samples.parquet") for key in keys)
    assert lab.prepare(cache={"records": "encoded"})["status"] == "built"
    lab.check()


def test_the_odd_ones_are_the_fewer(tmp_path: Path) -> None:
    lab = directory_lab(tmp_path, {"a/0.png": png(0)} | {f"b/{n}.png": WORDS for n in range(3)})
    assert list(failed(lab)) == ["a/0.png"]


def test_sizes_may_differ_unless_they_must_not(tmp_path: Path) -> None:
    lab = directory_lab(tmp_path, images() | LARGE | {"a/00.seg.png": png(7, 4, 4)})
    same = {"cache": {"records": "decoded", "same_size": True}}
    assert failed(lab, **same) == {
        "b/90.png": "b/90.png: it is 40 x 30, but a/00.png is 9 x 7, which one cache cannot hold"
    }
    assert lab.prepare()["status"] == "built"
    lab.check()


def test_a_new_segment_is_compared_with_those_beside_it(tmp_path: Path) -> None:
    same = {"cache": {"records": "decoded", "same_size": True}}
    lab = directory_lab(tmp_path, images(), **same)
    first = lab.prepare()
    write(tmp_path / "source", {"a/80.png": WORDS})
    assert failed(lab) == {
        "a/80.png": "a/80.png: it decodes to uint16, like 1 image, but a/00.png to uint8, which one"
        " cache cannot hold"
    }
    write(tmp_path / "source", {"a/80.png": png(80, 9, 8)})
    assert failed(lab) == {
        "a/80.png": "a/80.png: it is 9 x 8, but a/00.png is 9 x 7, which one cache cannot hold"
    }
    write(tmp_path / "source", {"a/80.png": png(80)})
    assert lab.prepare()["version"] != first["version"]
    lab.check()


def test_samples_that_are_packed_again_are_compared_too(tmp_path: Path) -> None:
    objects = images() | {f"b/{number}.png": WORDS for number in range(60, 63)}
    lab = directory_lab(tmp_path, objects, cache=None)
    lab.prepare()
    decoded = {"cache": {"records": "decoded"}, "growth": {"mode": "rebuild"}}
    write(tmp_path / "source", {"a/80.png": png(80)})
    assert list(failed(lab, **decoded)) == ["b/60.png"]


def test_a_run_that_was_stopped_says_the_same(tmp_path: Path) -> None:
    """What was noted before is in the receipts."""
    cluster = {"runner": {"batch_bytes": 1}}
    lab = directory_lab(tmp_path, images() | {"b/50.png": WORDS}, cluster=cluster)
    once = failed(lab)
    stores: list[RecordingStore] = []

    def recorded(store: Store) -> Store:
        stores.append(RecordingStore(store))
        return stores[-1]

    with between(recorded):
        assert failed(lab) == once
    writes = [call.key for store in stores for call in store.writes]
    assert not any(key.endswith(".tar") for key in writes)


def test_undecodable_images_of_several_batches_are_all_named(tmp_path: Path) -> None:
    broken = {f"{name}/{n}.png": png(n)[:-40] for name in "abc" for n in (40, 41)}
    cluster = {"runner": {"batch_bytes": 1, "workers": 2}}
    lab = directory_lab(tmp_path, images() | broken, cluster=cluster)
    found = failed(lab)
    assert found.keys() == broken.keys()
    assert all(message.startswith(f"{key}: the image cannot") for key, message in found.items())


def test_the_same_size_of_what_is_not_decoded() -> None:
    fields = {"name": "d", "source": {"url": "/s"}, "cache": {"same_size": True}}
    with pytest.raises(ValidationError, match="same_size is about decoded images"):
        Dataset.model_validate(fields)
