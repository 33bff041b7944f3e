"""What a plan says about the mirror, the cost and archived objects; and the run."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, images, opened, png, write

from larder.errors import ObjectError
from larder.jobs.results import RefusedError, Totals
from larder.segments import mirror
from larder.store import Store
from larder.store.base import ObjectInfo
from larder.store.delegate import DelegatingStore
from tests.support.errors import larder_error
from tests.support.runs import between

IMAGES = images()
BYTES = sum(map(len, IMAGES.values()))
EAST, WEST = {"region": "us-east-1"}, {"region": "us-west-2"}


class Large(DelegatingStore):
    """Lists objects of 100 GB: only the listing says how large they are, and no plan reads them."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        for page in self.inner.list(prefix, start_after=start_after):
            yield [info._replace(size_bytes=10**11) for info in page]


def lab_of(
    folder: Path, name: str, source: dict[str, Any], storage: dict[str, Any], **fields: Any
) -> Lab:
    """Between two buckets in memory that claim to be anywhere."""
    write(f"memory://{name}-source", IMAGES)
    defaults = {"labels": {"from": "folder"}, "shards": {"bytes": 8_000}}
    return Lab(
        {"url": f"s3://memory-{name}-source", **source},
        {"url": f"s3://memory-{name}-local", **storage},
        folder / "out",
        {**defaults, **fields},
    )


def test_another_region_is_mirrored_and_priced(tmp_path):
    lab = lab_of(tmp_path, "priced", EAST, WEST)
    with between():
        plan = lab.plan()
        assert plan["mirror"]["wanted"] is True
        assert plan["copied"] == {"count": len(IMAGES), "bytes": BYTES}
        assert plan["engine"]["engine"] == "native"
        cost = plan["cost"]
        assert (cost["usd_per_gb"], cost["bytes"]) == (0.02, BYTES)
        written = 15 + plan["shards"]["count"]
        assert cost["requests_usd"] == round(written * 5e-6 + 15 * 4e-7, 4)
        document = lab.prepare()
        assert document["copied"]["count"] == 15


def test_a_plan_that_costs_more_than_the_limit_or_has_no_known_price_is_refused(tmp_path):
    with between(lambda store: Large(store) if "source" in store.url else store):
        lab = lab_of(tmp_path, "limited", EAST, {"region": "ap-east-1"})
        unknown = lab_of(tmp_path, "limit", {"region": "moon-base-1"}, WEST)
        lab.plan(cluster={"copy": {"max_cost_usd": 31}})
        for refused, limit in ((lab, 20), (unknown, 1000)):
            with larder_error("config.cost_limit"):
                refused.plan(cluster={"copy": {"max_cost_usd": limit}})


@pytest.mark.push
def test_a_plan_says_a_time_only_where_an_earlier_run_measured_one(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "ENOUGH", Totals(15, 10**12))
    lab = lab_of(tmp_path, "pace", EAST, WEST)
    with between():
        first = lab.plan()
        assert first["copy_seconds"] is None
        lab.prepare()
        write("memory://pace-source", {"d/00.png": png(50)})
        plan = lab.plan()
        assert plan["copy_seconds"] is not None
        other = lab_of(tmp_path, "pace", {"region": "eu-west-1"}, WEST)
        assert other.plan()["copy_seconds"] is None, "it was another source"
        lab.prepare()
        with opened("memory://pace-local") as storage:
            key = "larder/d/work/measured.json"
            assert b'"objects":15' in bytes(storage.get(key)), "one object says little"
            storage.put(key, b"damaged")
        write("memory://pace-source", {"d/01.png": png(51)})
        assert lab.plan()["copy_seconds"] is None
        assert lab.prepare()["status"] == "built"


class Glacier(DelegatingStore):
    """A bucket in which some objects are archived; once restored, they can be read."""

    def __init__(self, inner: Store, keys: set[str], *, restored: bool = False) -> None:
        super().__init__(inner)
        self._keys, self._restored = keys, restored

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        for page in self.inner.list(prefix, start_after=start_after):
            classes = ("GLACIER" if info.key in self._keys else "" for info in page)
            yield [i._replace(storage_class=name) for i, name in zip(page, classes, strict=True)]

    def around(self, method: str, key: str, call: Callable[..., Any], **options: Any) -> Any:
        if method in ("get", "open") and key in self._keys and not self._restored:
            raise ObjectError("object.unreadable", "the object is archived", where=key)
        return call(**options)


def archived(*keys: str, restored: bool = False) -> Callable[[Store], Store]:
    return lambda s: Glacier(s, {*keys}, restored=restored) if "source" in s.url else s


@pytest.mark.parametrize("mirror", [True, False])
def test_archived_objects_are_planned_and_refused_before_anything_is_written(tmp_path, mirror):
    name = f"archive-{mirror}".lower()
    lab = lab_of(tmp_path, name, EAST, WEST, mirror=mirror)
    keys = ("a/01.png", "c/02.png")
    with between(archived(*keys)):
        plan = lab.plan()
        size_bytes = sum(len(IMAGES[key]) for key in keys)
        (found,) = plan["archived"]["classes"]
        assert found == {"name": "GLACIER", "count": 2, "bytes": size_bytes, "reading": "refused"}
        assert plan["archived"]["to_restore"] == 2
        with pytest.raises(RefusedError) as caught:
            lab.prepare()
        with opened(f"memory://{name}-local") as storage:
            assert list(storage.list()) == []
    failures = {failure.key: failure.code for failure in caught.value.report.failures}
    assert failures == dict.fromkeys(keys, "object.unreadable")
    with between(archived(*keys, restored=True)):
        assert lab.prepare()["shards"]["samples"] == 12, "a listing does not say that"


def test_objects_archived_after_they_were_packed_do_not_matter(tmp_path):
    lab = lab_of(tmp_path, "sunk", EAST, WEST, mirror=False)
    with between():
        lab.prepare()
        write("memory://sunk-source", {"d/00.png": png(50)})
    with between(archived(*IMAGES)):
        plan = lab.plan()
        assert plan["archived"]["to_restore"] == 0
        assert plan["archived"]["classes"][0]["count"] == 15
        assert lab.prepare()["shards"]["samples"] == 13


class Somewhere(DelegatingStore):
    def __init__(self, inner: Store, found: str, asked: list[str]) -> None:
        super().__init__(inner)
        self.found, self.asked = found, asked

    def region(self) -> str:
        self.asked.append(self.url)
        return self.found


def test_a_region_that_is_found_prices_and_mirrors_like_a_configured_one(tmp_path):
    asked: list[str] = []

    def wrap(store: Store) -> Store:
        return Somewhere(store, (EAST if "source" in store.url else WEST)["region"], asked)

    with between():
        configured = lab_of(tmp_path, "told", EAST, WEST).plan()
    with between(wrap):
        lab = lab_of(tmp_path, "found", {}, {})
        plan = lab.plan()
        assert len(asked) == 2
        assert plan["mirror"] == configured["mirror"]
        assert plan["mirror"]["wanted"]
        assert plan["cost"] == configured["cost"]
        assert lab.prepare()["copied"]["count"] == 15
        asked.clear()
        assert lab.prepare()["status"] == "reused"
        assert asked == [], "nobody needs to know"
