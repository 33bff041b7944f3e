"""What a growth costs, in bytes and in requests: what changed, and nothing else.

Contents cannot be compressed, and the stores are in memory with md5 etags of 32 hex digits. Where
one percent is measured there are 2,000 samples of 8,000 bytes in shards of 160 kB: a cache file has
about 12 kB of its own and a tar archive ends on a multiple of 10,240 bytes, which is more than a
tenth of one percent of a smaller dataset. Manifests are measured with 20,000 objects and keys like
those of ImageNet; a Parquet file has some 2 kB of its own.
"""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from costs_lab import READ, Costs, Field, blob, blobs, field, kind_of
from required import at_night

pytestmark = pytest.mark.push

LABELS = {"from": "folder"}
SMALL: dict[str, Any] = {"labels": LABELS, "shards": {"bytes": 30_000}}
ENCODED = {"records": "encoded"}
TAR_END = 2 * 10_240
RECEIPT_BYTES = 8_000
"""Of a shard of some dozens of samples."""
DOCUMENTS_BYTES = 60_000
"""Documents and manifests of a run of a few hundred objects."""


def shards_of(lab: Field, version: str) -> dict[str, list[str]]:
    paths = [path for path in lab.check()[version].shards if path.endswith(".tar")]
    with lab.opened_root() as root:
        return {path: sorted(set(tar_keys(root.get(path)))) for path in paths}


def tar_keys(data: bytes) -> Iterator[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for name in archive.getnames():
            yield name.rpartition(".")[0]


# One percent more


@pytest.mark.parametrize("shuffle_seed", [None, 7])
@pytest.mark.parametrize("cache", [*at_night(None), ENCODED], ids=["no cache", "encoded"])
def test_one_percent_more_writes_one_percent(tmp_path, shuffle_seed, cache):
    shards = {"bytes": 160_000, "shuffle_seed": shuffle_seed}
    splits = {"by": "hash", "seed": 1, "fractions": {"train": 0.9, "validation": 0.1}}
    fields = {"labels": LABELS, "shards": shards, "cache": cache, "splits": splits}
    anywhere = blobs(20, 8_000, first=2_000)
    first = {f"a/!{number}.bin": blob(f"!{number}", 8_000) for number in range(20)}
    last = {f"d/~{number}.bin": blob(f"~{number}", 8_000) for number in range(20)}
    other_class = {f"c2/{number}.bin": blob(f"c2{number}", 8_000) for number in range(20)}
    with field(tmp_path, blobs(2_000, 8_000), **fields) as lab:
        whole = lab.run()
        total = whole.written("shards", "caches")
        assert total > (16_000_000 if cache is None else 32_000_000)
        objects = 2_000
        for added in (anywhere, first, last, other_class):
            lab.add(added)
            objects += 20
            grown = lab.run()
            assert grown.written("shards", "caches") <= 0.011 * total
            # The inventory, and the record of the mirror.
            manifests = (60 + 50) * objects + RECEIPT_BYTES * len(grown.wrote("shards"))
            assert grown.written("documents") <= manifests + 10_000
            assert grown.written("readers") <= 80 * 20 + 20_000
            assert set(grown.wrote("mirror")) == {f"mirror/{key}" for key in added}
            assert set(grown.opened("source")) == {f"source/{key}" for key in added}
            own = {key.split("/")[1] for key in grown.wrote("shards", "caches")}
            assert {key.split("/")[1] for key in grown.opened("shards")} <= own
            assert grown.document["copied"] == {"count": 20, "bytes": 160_000}
            assert grown.document["segments"]["new"] == 1
        assert grown.document["segments"]["total"] == 5
        published = lab.latest(grown.document)
        assert sum(map(len, published.samples.values())) == 2_080


# Samples removed, changed, relabelled


OBJECTS = {f"{number:03}.bin": blob(f"{number:03}", 2_000) for number in range(120)}


def labels(changed: int | None = None) -> bytes:
    """Of each sample, one of three; those that are divisible by ``changed`` have another one."""
    lines = []
    for number in range(120):
        other = changed is not None and number % changed == 0
        lines.append(f"{number:03} {'xyz'[(number + other) % 3]}\n")
    return "".join(lines).encode()


def numbered(tmp_path: Path, **fields: Any) -> Any:
    """120 samples of 2 kB, whose labels are in a file, in shards of about 8."""
    objects = {**OBJECTS, "labels.txt": labels()}
    own = {"labels": {"from": "folder", "files": {"train": "labels.txt"}}}
    return field(tmp_path, objects, **{**SMALL, **own, "cache": ENCODED, **fields})


def change(lab: Field, what: str) -> list[str]:
    """Change three samples in two shards; returns their keys."""
    chosen = [0, 1, 60]
    keys = [f"{number:03}" for number in chosen]
    if what == "removed":
        lab.remove(*(f"{key}.bin" for key in keys))
    elif what == "changed":
        lab.add({f"{key}.bin": blob(f"other {key}", 2_000) for key in keys})
    else:
        now = labels().decode().splitlines(keepends=True)
        for number in chosen:
            now[number] = f"{number:03} {'xyz'[(number + 1) % 3]}\n"
        lab.add({"labels.txt": "".join(now).encode()})
    return keys


@pytest.mark.parametrize("what", ["removed", "changed", "relabelled"])
@pytest.mark.parametrize("removals", ["repack", "omit"])
@pytest.mark.parametrize("mirror", [True, *at_night(False)])
def test_what_a_change_packs_again(tmp_path, what, removals, mirror):
    growth = {"removals": removals}
    with numbered(tmp_path, mirror=mirror, growth=growth) as lab:
        first = lab.run().document
        before = shards_of(lab, first["version"])
        changed = change(lab, what)
        touched = {path for path, keys in before.items() if set(keys) & set(changed)}
        assert len(touched) == 2
        grown = lab.run()
        published = lab.latest(grown.document)
        own = {sample.key for sample in published.samples["train"]}
        assert own == {key.partition(".")[0] for key in OBJECTS} - (
            set(changed) if what == "removed" else set()
        )
        after = shards_of(lab, grown.document["version"])

        # Written: what is in the new shards.
        new = {path: keys for path, keys in after.items() if path not in before}
        neighbours = {key for path in touched for key in before[path]} - set(changed)
        packed = neighbours if removals == "repack" else set()
        if what != "removed":
            packed |= set(changed)
        assert {key for keys in new.values() for key in keys} == packed
        assert set(grown.wrote("shards")) == set(new)
        samples = 2_000 + 512 + 48 + 1_024
        assert grown.written("shards") <= samples * len(packed) + TAR_END * len(new)
        assert len(grown.wrote("caches")) == bool(packed)
        assert grown.written("caches") <= (4_096 * len(packed) + 16_384) * bool(packed)
        assert grown.written("documents") <= DOCUMENTS_BYTES + RECEIPT_BYTES * len(new)
        assert grown.written("readers") <= 80 * len(packed) + 8_000

        # Read: changed objects, the shards that are packed again, and new shards for the cache.
        objects = {f"{key}.bin" for key in changed} if what == "changed" else set()
        source = objects | {"labels.txt"}
        assert set(grown.opened("source")) == {f"source/{key}" for key in source}
        copies = objects | ({"labels.txt"} if what == "relabelled" else set())
        copied = {f"mirror/{key}" for key in copies} if mirror else set()
        assert set(grown.wrote("mirror")) == copied
        assert set(grown.opened("mirror")) == (
            {f"mirror/{key}" for key in objects} if mirror else set()
        )
        again = touched if removals == "repack" or what == "relabelled" else set()
        assert {key for key in grown.opened("shards") if key not in new} == again
        assert grown.opened("caches") == []
        assert set(before) - set(after) == (touched if removals == "repack" else set())


# What leaves shards alone


def test_a_cache_that_is_turned_on_or_off_leaves_the_shards_alone(tmp_path):
    with field(tmp_path, blobs(60, 2_000), **SMALL) as lab:
        shards = shards_of(lab, lab.run().document["version"])
        on = lab.run(cache=ENCODED)
        assert on.wrote("shards", "mirror") == on.opened("source", "mirror") == []
        assert sorted(on.opened("shards")) == sorted(shards), "each once"
        for cache in (None, ENCODED):
            turned = lab.run(cache=cache)
            assert turned.wrote("shards", "caches", "mirror") == []
            assert turned.opened("source", "mirror", "shards", "caches") == []


# Planning


def planned_after(tmp_path: Path, versions: int, *, mode: str) -> Costs:
    """The costs of planning after some versions, the last two of which are always the same."""
    objects = blobs(60, 1_000)
    changing = next(iter(objects))
    with field(tmp_path, objects, **SMALL, cache=ENCODED) as lab:
        for number in range(versions - 1):
            lab.add({changing: blob(f"version {number}", 1_000)})
            lab.run(growth={"mode": mode})
        lab.add({changing: blob("last", 1_000)})
        lab.run(growth={"mode": "rebuild"})
        lab.add(blobs(1, 1_000, first=60))
        costs = lab.planned()
        assert costs.document["segments"] == {"total": 2, "new": 1, "omitted": 0}
        with lab.opened_root() as root:
            keys = [info.key for page in root.list("versions/") for info in page]
        assert len([key for key in keys if key.endswith("version.json")]) == versions
        return costs


def without_growing(costs: Costs) -> int:
    """Bytes read, but for the record of copies, and for the tag with its history."""
    grow = ("tags/", "work/mirror/")
    return costs.read() - sum(call.size_bytes for call in costs.calls if call.key.startswith(grow))


@pytest.mark.parametrize("mode", ["append", *at_night("rebuild")])
def test_planning_costs_the_same_after_3_and_after_30_versions(tmp_path, mode):
    few, many = (planned_after(tmp_path, versions, mode=mode) for versions in (3, 30))
    assert many.requests == few.requests
    assert without_growing(many) <= 1.02 * without_growing(few)
    for costs in (few, many):
        assert costs.wrote() == costs.opened("source", "mirror", "shards", "caches") == []


@pytest.mark.parametrize("mirror", [True, False])
def test_the_figures_of_a_plan_are_those_of_the_run(tmp_path, mirror):
    def change_nothing(lab: Field) -> None:
        pass

    def add(lab: Field) -> None:
        lab.add(blobs(9, 2_000, first=60))

    def remove(lab: Field) -> None:
        lab.remove(*list(blobs(60, 2_000))[:3])

    def alter(lab: Field) -> None:
        lab.add({key: blob(f"new {key}", 2_000) for key in list(blobs(60, 2_000))[20:22]})

    with field(tmp_path, blobs(60, 2_000), **SMALL, cache=ENCODED, mirror=mirror) as lab:
        packed = 0
        for step in (change_nothing, add, remove, alter):
            step(lab)
            planned = lab.planned()
            assert planned.wrote() == []
            does = lab.planned(growth={"removals": "omit"}).document["growth"]
            if said := planned.document["growth"]["other"]:  # of the other policy
                for same in ("removals", "omitted", "unlisted"):
                    assert said[same] == does[same], same
                assert said["packed"]["count"] == does["packed"]["count"]
            run = lab.run()
            for same in ("version", "copied", "objects", "segments"):
                assert planned.document[same] == run.document[same], same
            for same in ("count", "bytes", "samples"):
                assert planned.document["shards"][same] == run.document["shards"][same], same
            growth = planned.document["growth"]
            objects = "mirror" if mirror else "source"
            assert growth["read"] == {"count": len(run.opened(objects)), "bytes": run.read(objects)}
            assert planned.document["copied"] == {
                "count": len(run.wrote("mirror")),
                "bytes": run.written("mirror"),
            }
            shards = run.wrote("shards")
            new = growth["new_shards"]
            assert (new["count"], new["bytes"]) == (len(shards), run.written("shards"))
            assert growth["caches"] == {
                "count": len(run.wrote("caches")),
                "bytes": run.written("shards"),
            }
            old = [call for call in run.calls if call.method in READ and call.key not in shards]
            old = [call for call in old if kind_of(call.key) == "shards"]
            read = {call.key: call.size_bytes for call in old}
            assert growth["packed"]["bytes"] <= sum(call.size_bytes for call in old)
            assert growth["unlisted"] == len(read)
            assert new["samples"] == growth["packed"]["count"] + growth["read"]["count"]
            packed += growth["packed"]["count"]
        assert packed > 20


# Compaction


@pytest.mark.parametrize("shuffle_seed", [7, *at_night(None)])
def test_a_compaction_reads_every_shard_once_and_nothing_else(tmp_path, shuffle_seed):
    shards = {**SMALL["shards"], "shuffle_seed": shuffle_seed}
    with numbered(tmp_path, growth={"removals": "omit"}, shards=shards) as lab:
        lab.run()
        for what in ("changed", "relabelled", "removed"):
            change(lab, what)
            grown = lab.run()
        before = shards_of(lab, grown.document["version"])
        compacted = lab.compacted()
        assert compacted.document["segments"] == {"total": 1, "new": 1, "omitted": 0}
        assert compacted.wrote("mirror") == compacted.opened("mirror", "caches") == []
        assert set(compacted.opened("source")) == {"source/labels.txt"}
        old = [call for call in compacted.calls if call.key in before and call.method in READ]
        assert sum(call.size_bytes for call in old) <= grown.document["shards"]["bytes"]
        assert compacted.written("shards") <= grown.document["shards"]["bytes"]
        assert len(compacted.wrote("caches")) == 1
        again = lab.compacted()
        assert (again.document["status"], again.wrote()) == ("reused", [])
        assert set(again.opened("source")) == {"source/labels.txt"}
        assert again.opened("shards", "mirror", "caches") == []


# A hundred days
