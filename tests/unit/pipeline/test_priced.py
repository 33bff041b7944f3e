"""Requests of a plan: parts counted, by size, for the copies and for the shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from larder.config.models import Cluster, Dataset
from larder.manifest.writer import ManifestFile
from larder.pipeline.priced import Priced, Work, price
from larder.pipeline.results import Totals
from larder.transfer.cost import Requests
from larder.transfer.inventory import Inventory, LeftOut

EAST = {"url": "s3://source/in", "region": "us-east-1"}
WEST = {"url": "s3://storage/out", "region": "us-west-2"}
MIB = 1024**2
NOTHING = Totals()


def inventory(*sizes: tuple[int, int]) -> Inventory:
    """Objects by size class: their number and their bytes."""
    count, size_bytes = (sum(each[place] for each in sizes) for place in (0, 1))
    file = ManifestFile(Path("none"), "", 0, count)
    return Inventory(file, count, size_bytes, count, "", LeftOut(), LeftOut(), sizes=sizes)


def priced(
    found: Inventory,
    *,
    copied: Totals | None,
    source: dict[str, Any] = EAST,
    storage: dict[str, Any] = WEST,
    shards: Totals = NOTHING,
    **copy: Any,
) -> Priced:
    read = Totals(found.objects, found.bytes)
    dataset = Dataset.model_validate({"name": "d", "source": source})
    cluster = Cluster.model_validate({"name": "c", "storage": storage, "copy": copy})
    return price(
        dataset.source,
        cluster.storage,
        cluster.copy_,
        Work(found, copied, read, shards, Totals() if copied is None else read),
    )


MIXED = inventory((4_000, 4_000 * 110_000), (8, 8 * 128 * MIB))
ALL = Totals(MIXED.objects, MIXED.bytes)


def test_copies_of_the_server_are_in_parts_above_a_size() -> None:
    found = priced(MIXED, copied=ALL)
    assert found.server_side
    assert found.requests == Requests(get=4_008, copy=4_008, list=5)
    small = priced(MIXED, copied=ALL, server_copy_bytes=64 * MIB)
    assert small.storage.copy == 4_000 + 8 * (2 + 2)


def test_streamed_copies_and_shards_are_in_parts() -> None:
    other = {"url": "gs://source/in", "region": "us-central1"}
    shards = Totals(3, 3 * 100 * MIB)
    found = priced(MIXED, copied=ALL, source=other, shards=shards)
    assert not found.server_side
    assert found.source == Requests(get=4_008, list=5)
    assert found.storage.put == 4_000 + 8 * (8 + 2) + 3 * (7 + 2)
    assert found.storage.get == 4_008
    assert found.cost.total_usd == pytest.approx(
        0.12 * MIXED.bytes / 1e9 + 4_008 * 4e-7 + 5 * 5e-6 + found.storage.put * 5e-6 + 4_008 * 4e-7
    )


def test_a_part_of_the_objects_takes_its_share() -> None:
    half = Totals(MIXED.objects // 2, MIXED.bytes // 2)
    whole = priced(MIXED, copied=ALL, server_copy_bytes=64 * MIB).storage.copy
    assert priced(MIXED, copied=half, server_copy_bytes=64 * MIB).storage.copy == whole / 2
    none = priced(MIXED, copied=Totals())
    assert none.storage.copy == 0
    assert none.cost.egress_usd == 0


def test_without_a_mirror_the_source_is_read_once_and_nothing_is_kept() -> None:
    found = priced(MIXED, copied=None, shards=Totals(1, MIB))
    assert found.source == Requests(get=4_008, list=5)
    assert found.storage == Requests(put=1)
    assert found.month_usd == 0
    assert found.cost.egress_usd == pytest.approx(0.02 * MIXED.bytes / 1e9)


def test_the_mirror_costs_by_the_month() -> None:
    found = priced(MIXED, copied=Totals(1, 1))
    assert found.month_usd == pytest.approx(0.023 * MIXED.bytes / 1e9)
    elsewhere = {**WEST, "region": "ap-east-1"}
    assert priced(MIXED, copied=ALL, storage=elsewhere).month_usd is None


def test_a_directory_makes_no_requests() -> None:
    found = priced(MIXED, copied=None, source={"url": "/in"}, storage={"url": "/out"})
    assert found.requests == Requests()
    assert found.cost.total_usd == 0
    down = priced(MIXED, copied=ALL, storage={"url": "/out"})
    assert down.storage == Requests()
    assert down.cost.egress_usd == pytest.approx(0.09 * MIXED.bytes / 1e9)


def test_a_public_bucket_is_paid_by_its_owner() -> None:
    found = priced(MIXED, copied=ALL, source={**EAST, "anonymous": True})
    assert found.cost.egress_usd == 0
    assert found.cost.total_usd == pytest.approx((4_008) * 5e-6 + 4_008 * 4e-7)
