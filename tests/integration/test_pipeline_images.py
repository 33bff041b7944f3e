"""Images in complete runs: the limit on pixels, forms that one cache cannot hold, transforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images, png
from pydantic import ValidationError

from larder.pipeline.results import RunError

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
