"""More work has a longer estimate."""

from __future__ import annotations

from typing import Any

import pytest

from larder.config.models import Cluster, Dataset
from larder.pipeline.estimate import BUCKETS, estimate_seconds
from larder.pipeline.measured import Measured
from larder.pipeline.results import Totals

GB = 10**9
PLAIN = Totals(10_000, GB)


def seconds(
    *,
    source: str = "/source",
    local: str = "/local",
    objects: Totals = PLAIN,
    images: Totals = PLAIN,
    copied: Totals = PLAIN,
    shards: Totals = PLAIN,
    **fields: Any,
) -> float:
    return estimate_seconds(
        Dataset.model_validate({"name": "d", "source": {"url": source}, **fields}),
        Cluster.model_validate({"name": "c", "storage": {"url": local}}),
        objects=objects,
        images=images,
        copied=copied,
        shards=shards,
    )


@pytest.mark.parametrize(
    "more",
    [
        {"source": "s3://bucket/prefix"},
        {"local": "s3://bucket"},
        {"copied": Totals(10_000, 2 * GB)},
        {"copied": Totals(20_000, GB)},
        {"shards": Totals(10, 2 * GB)},
        {"objects": Totals(20_000, GB)},
        {"validate": "decode"},
        {"cache": {"records": "encoded"}},
    ],
)
def test_more_takes_longer(more: dict[str, Any]) -> None:
    assert seconds(**more) > seconds()


def test_the_pace_of_copies_is_given_or_measured() -> None:
    def copying(copy: dict[str, Any], measured: Measured | None = None) -> float:
        return estimate_seconds(
            Dataset.model_validate({"name": "d", "source": {"url": "s3://bucket/x"}}),
            Cluster.model_validate({"name": "c", "storage": {"url": "s3://other"}, "copy": copy}),
            objects=Totals(),
            images=Totals(),
            copied=Totals(1_000, 10 * GB),
            shards=Totals(),
            measured=measured,
        )

    rough = copying({})
    assert rough == pytest.approx(10 * GB / BUCKETS.bytes + 1)
    assert copying({"bytes_per_second": GB}) == pytest.approx(10 + 1)
    before = Measured(1_000, 10 * GB, 10.0, "a", "b")
    assert copying({}, before) == pytest.approx(10.0)
    assert copying({}, Measured(10_000, 100 * GB, 10.0, "a", "b")) == pytest.approx(1.0)
    assert copying({"bytes_per_second": GB}, before) == pytest.approx(11)
    assert copying({"max_bytes_per_second": 10**8}, before) == pytest.approx(100)
    assert copying({"max_bytes_per_second": 10 * GB}, before) == pytest.approx(10)


def test_a_cache_of_arrays_takes_longest_and_only_images_are_decoded() -> None:
    decoded = {"cache": {"records": "decoded"}, "validate": "decode"}
    assert seconds(**decoded) > seconds(cache={"records": "encoded"}, validate="decode")
    assert seconds(**decoded, images=Totals()) == seconds(cache={"records": "encoded"})


def test_directories_are_those_of_urls_too() -> None:
    assert seconds(source="file:///source") == seconds()


def test_nothing_to_do_takes_no_time() -> None:
    nothing = Totals()
    assert seconds(objects=nothing, images=nothing, copied=nothing, shards=nothing) == 0


def test_measured_runs_are_within_a_factor_of_two() -> None:
    """Copying and packing 10,000 files of 1 kB took 4.1 s, 4,000 of 110 kB took 6.2 s."""
    small = Totals(10_000, 10_000_000)
    large = Totals(4_000, 440_000_000)
    for found, padded, took in ((small, 20_490_000, 4.1), (large, 444_000_000, 6.2)):
        shards = Totals(1, padded)
        guess = seconds(objects=found, images=Totals(), copied=found, shards=shards)
        assert took / 2 < guess < took * 2
