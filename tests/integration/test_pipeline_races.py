"""Runs that overlap: of two states of the source, of the same state, with clocks that differ.

Everything happens in one thread: what another run does in the meantime happens right before a call
of the first one. After each test everything that is published is complete, and the tag names a
version with the samples that the source had when the last run that finished listed it.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pipeline_lab import DOCUMENT, Lab, images, objects_of, opened, png, reach
from required import at_night

from larder.jobs.step_runner import InlineRunner
from larder.pipeline.preparing import RESTARTS, prepare
from larder.progress import NullProgress, StageTimes
from larder.store.base import Store
from larder.versions.tags import Tag
from tests.support.checker import Published
from tests.support.errors import larder_error
from tests.support.memory import forget
from tests.support.runs import between, forget_manifests
from tests.support.servers import S3Server
from tests.support.stores import Meanwhile, MeanwhileStore, UnconditionalStore

pytestmark = pytest.mark.push

FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "splits": {"train": ["a/**", "b/**", "d/**"], "validation": ["c/**"]},
    "shards": {"bytes": 8_000},
    "cache": {"records": "encoded"},
    "on_bad_key": "skip",
}
TAG = "tags/latest.json"
IN_MEMORY = ["kept", *at_night("ignored", "refused")]
ON_RADOSGW = pytest.param("radosgw", marks=pytest.mark.radosgw)
EVERYWHERE = ["kept", "ignored", "directory", ON_RADOSGW, *at_night("refused", "rclone")]
KEEPING = ["kept", "directory", "radosgw"]
"""Storages that keep the conditions of writes."""


class Told(NullProgress):
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def restart(self, reason: str) -> None:
        self.reasons.append(reason)


@dataclass
class Race:
    """A source that changes, and a storage in which several runs publish."""

    lab: Lab
    source: Mapping[str, str]
    wrap: Callable[[Store], Store]
    keeps: bool
    objects: dict[str, bytes] = field(default_factory=dict)

    def run(
        self,
        moment: tuple[str, str] = ("", ""),
        act: Callable[[], object] | None = None,
        *,
        restarts: int = 0,
        compact: bool = False,
        **fields: Any,
    ) -> DOCUMENT:
        """A run in a new process, that starts again so often; the act happens at the moment."""
        told, meanwhile = Told(), Meanwhile()
        if act is not None:
            meanwhile.before(*moment, act)
        forget_manifests()
        with between(lambda store: MeanwhileStore(self.wrap(store), meanwhile)):
            settings = self.lab.settings(**fields)._replace(compact=compact)
            document = prepare(settings, InlineRunner(2, StageTimes(told)))
        assert not meanwhile.waiting
        assert len(told.reasons) == restarts
        return document

    def change(self, objects: Mapping[str, bytes | None]) -> None:
        """Write objects into the source; None deletes one."""
        with opened(**self.source) as store:
            for key, data in objects.items():
                if data is None:
                    store.delete(key)
                    del self.objects[key]
                else:
                    store.put(key, data)
                    self.objects[key] = data

    def other_run(self, objects: Mapping[str, bytes | None]) -> None:
        """The source changes, and another run lists it."""
        self.change(objects)
        self.run()

    def check(self, objects: Mapping[str, bytes] | None = None) -> dict[str, Published]:
        """Everything, and that the tag names the samples of the source, as it is or was."""
        found = self.lab.check()
        assert objects_of(found[self.lab.tag.version]) == {
            key: data
            for key, data in (self.objects if objects is None else objects).items()
            if key.endswith((".png", ".json"))
        }
        return found


def wrapper(kind: str) -> Callable[[Store], Store]:
    if kind in ("ignored", "refused"):
        return lambda store: UnconditionalStore(store, refuses=kind == "refused")
    return lambda store: store


@pytest.fixture
def race(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Race]:
    kind: str = request.param
    name = uuid.uuid4().hex
    if kind == "directory":
        source, storage = {"url": str(tmp_path / "source")}, {"url": str(tmp_path / "local")}
    elif kind in ("kept", "ignored", "refused"):
        source, storage = {"url": f"memory://{name}-source"}, {"url": f"s3://memory-{name}"}
    else:
        server: S3Server = request.getfixturevalue(f"{kind}_server")
        server.create_bucket("races")
        source = {"url": f"s3://races/{name}/source", **reach(server)}
        storage = {"url": f"s3://races/{name}/local", **reach(server)}
    lab = Lab(source, storage, tmp_path / "out", FIELDS)
    found = Race(lab, source, wrapper(kind), keeps=kind in KEEPING)
    found.change(images())
    yield found
    forget(name)
    forget(f"{name}-source")


HEAD, PUT = ("head", TAG), ("put", TAG)
MOMENTS = [
    ("put", "work/conditions.json"),
    ("put", "version.json"),
    HEAD,
    *at_night((("put", "segment.json"),)),
]


@pytest.mark.parametrize("race", EVERYWHERE, indirect=True)
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment[1])
@pytest.mark.parametrize("added", [{}, {"d/00.png": png(91)}], ids=["same", "older"])
def test_of_two_first_builds_one_from_an_older_listing_starts_again(race, moment, added):
    document = race.run(moment, lambda: race.other_run(added), restarts=len(added))
    assert race.lab.tag == Tag(document["version"], document["inputs"])
    assert added or list(race.check()) == [document["version"]]
    race.check()
    again = race.run()
    assert (again["status"], again["digest"]) == ("reused", document["digest"])


@pytest.mark.parametrize("race", EVERYWHERE, indirect=True)
@pytest.mark.parametrize("first", [True, False])
def test_a_tag_that_moves_right_before_it_is_written(race, first):
    """With conditions the run starts again; without, it wins, and the next run sees the source."""
    if not first:
        race.run()
        race.change({"a/01.png": png(90), "b/02.png": None})
    listed = dict(race.objects)
    document = race.run(
        PUT, lambda: race.other_run({"d/00.png": png(91)}), restarts=int(race.keeps)
    )
    assert race.lab.tag.version == document["version"]
    race.check(race.objects if race.keeps else listed)
    race.run()
    race.check()


@pytest.mark.parametrize("race", IN_MEMORY, indirect=True)
def test_a_run_that_is_superseded_every_time_ends_with_an_error(race):
    meanwhile, told, numbers = Meanwhile(), Told(), iter(range(99))

    def act() -> None:
        race.other_run({"d/00.png": png(80 + next(numbers))})
        race.change({"d/01.png": png(90 + next(numbers))})

    meanwhile.before(*HEAD, act, times=RESTARTS + 1)
    with between(lambda store: MeanwhileStore(race.wrap(store), meanwhile)):
        forget_manifests()
        with larder_error("version.superseded") as caught:
            prepare(race.lab.settings(), InlineRunner(2, StageTimes(told)))
    assert (caught.value.exit_status, caught.value.hint) == (1, "run again")
    assert (len(told.reasons), meanwhile.waiting) == (RESTARTS, 0)
    assert race.run()["status"] == "built"
    race.check()


# Compactions


def segments(published: Published) -> list[str]:
    return [use.id for use in published.version.segments]


@pytest.mark.parametrize("race", ["kept", "ignored"], indirect=True)
def test_a_growth_that_a_compaction_supersedes_grows_the_compaction(race):
    race.run()
    race.other_run({"a/01.png": png(80), "b/02.png": None})
    race.change({"c/01.png": png(81)})
    compacted = []

    def compact() -> None:
        race.change({"c/01.png": None})
        compacted.append(race.run(compact=True)["version"])
        race.change({"c/01.png": png(82)})

    document = race.run(HEAD, compact, restarts=1)
    published = race.check()
    (one,) = segments(published[compacted[0]])
    assert segments(published[race.lab.tag.version])[0] == one
    assert document["segments"]["total"] == 2


@pytest.mark.parametrize("race", ["kept", "ignored"], indirect=True)
def test_a_compaction_starts_over_if_another_run_gave_its_number_to_another_class(race):
    race.run()
    race.change({"e/00.png": png(80)})
    other = partial(race.other_run, {"e/00.png": None, "d/00.png": png(81)})
    document = race.run(HEAD, other, restarts=1, compact=True, splits={"train": "**"})
    published = race.check()
    assert (document["version"], document["segments"]["total"]) == (race.lab.tag.version, 1)
    assert published[document["version"]].version.classes == ("a", "b", "c", "d")


@pytest.mark.parametrize("race", ["kept", "ignored"], indirect=True)
def test_two_compactions_at_once_make_one_version(race):
    race.run()
    race.other_run({"a/01.png": png(80), "b/02.png": None})
    document = race.run(HEAD, lambda: race.run(compact=True), compact=True)
    assert (document["version"], document["segments"]["total"]) == (race.lab.tag.version, 1)
    assert len(race.check()) == 3


# No clock decides


@contextmanager
def clock(offset_seconds: int) -> Iterator[None]:
    seconds, nanoseconds = time.time, time.time_ns
    with (
        mock.patch("time.time", side_effect=lambda: seconds() + offset_seconds),
        mock.patch("time.time_ns", side_effect=lambda: nanoseconds() + offset_seconds * 10**9),
    ):
        yield


@pytest.mark.parametrize("race", ["directory", *at_night("kept")], indirect=True)
@pytest.mark.parametrize(
    "offsets", [(3600, -3600), (-3600, 3600), *at_night(((3600, 0),), ((0, -3600),))]
)
def test_clocks_that_differ_by_an_hour_decide_nothing(race, offsets):
    """Neither between a run and the next one, nor between two that overlap."""
    one, other = offsets
    with clock(one):
        race.run()
    with clock(other):
        race.other_run({"d/00.png": png(91), "a/01.png": None})
    race.check()

    def with_other_clock() -> None:
        with clock(other - one):
            race.other_run({"d/01.png": png(92)})

    race.change({"a/02.png": png(93)})
    with clock(one):
        document = race.run(HEAD, with_other_clock, restarts=1)
    assert document["version"] == race.lab.tag.version
    race.check()


# A dataset that grows

GROWING = [("upload", "work/shards/"), ("put", "version.json"), HEAD]
GROWING_AT_NIGHT = [("upload", "order-"), ("put", "segment.json"), ("put", "cache.json")]
GROWING_WHERE = pytest.mark.parametrize(
    ("race", "moment"),
    [
        *(("kept", moment) for moment in GROWING),
        *(("directory", moment) for moment in GROWING[-2:]),
        *at_night(*(("kept", moment) for moment in GROWING_AT_NIGHT)),
        *at_night(*(("ignored", moment) for moment in GROWING)),
    ],
    indirect=["race"],
    ids=lambda value: value if isinstance(value, str) else value[1],
)


@GROWING_WHERE
@pytest.mark.parametrize("removals", ["omit", *at_night("repack")])
def test_two_runs_grow_from_listings_before_and_after_a_change(race, moment, removals):
    race.run()
    race.change({"d/00.png": png(91), "a/01.png": None})
    other = partial(race.other_run, {"d/01.png": png(92), "a/02.png": None})
    document = race.run(moment, other, restarts=1, growth={"removals": removals})
    assert (document["version"], len(race.lab.tag.history)) == (race.lab.tag.version, 1)
    race.check()


@pytest.mark.parametrize("race", IN_MEMORY, indirect=True)
def test_a_run_that_only_notes_new_inputs_starts_again_too(race):
    """An object that makes no sample was added: the version stays, and its inputs change."""
    race.run()
    race.change({"README": b"words"})
    document = race.run(HEAD, lambda: race.other_run({"d/00.png": png(91)}), restarts=1)
    assert (document["version"], len(race.lab.tag.history)) == (race.lab.tag.version, 1)
    race.check()


@GROWING_WHERE
def test_a_compaction_adds_what_another_run_published_in_the_meantime(race, moment):
    race.run()
    race.change({"d/00.png": png(91), "a/01.png": None})
    before = race.run()

    def others() -> None:
        race.other_run({"z/00.png": png(93), "z/01.png": png(94)})
        race.other_run({"e/00.png": png(95), "d/00.png": None})

    splits = {"train": ["a/**", "b/**", "d/**", "e/**", "z/**"], "validation": ["c/**"]}
    race.lab = replace(race.lab, fields={**race.lab.fields, "splits": splits})
    document = race.run(moment, others, restarts=1, compact=True)
    found = race.check()
    version = found[document["version"]].version
    assert version.classes == ("a", "b", "c", "d", "z", "e")
    compacted, added = version.segments
    assert len(found) == 6  # of the compaction alone, too
    alone = [each.version for each in found.values() if len(each.version.segments) == 1]
    assert compacted.id in {each.segments[0].id for each in alone}
    assert added.id not in segments(found[before["version"]])
    again = race.run(compact=True)
    assert (again["status"], again["segments"]["total"]) == ("built", 1)
    race.check()
