"""Runs a history in a place, and compares what every reader sees with the model, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from history_model import (
    CLASSES,
    INPUTS,
    LABEL_FILE,
    Expected,
    History,
    State,
    Step,
    checked,
    edited,
    expected,
    fields,
)

import larder
from larder.errors import LarderError
from larder.growth import decision
from larder.jobs.results import RunError
from larder.jobs.runner import InlineRunner
from larder.manifest.files import read_manifest
from larder.pipeline.prepare import prepare
from larder.progress import StageTimes
from larder.samples.naming import LABEL_EXT
from larder.segments import derived_files
from larder.store import Store, open_store
from larder.verify.run import VerifySettings, verify
from larder.versions import omitted
from larder.versions.documents import VersionDocument
from larder.versions.publish import read_version
from larder.versions.tags import read_tag
from tests.support import checker
from tests.support.checker import Published, check_all, check_version
from tests.support.memory import forget
from tests.support.runs import between, forget_manifests, run_settings
from tests.support.stores import WRITES, Recorder, Stop, Stopped, StoppingStore

READS = ("open", "get", "head")


@dataclass(frozen=True)
class Place:
    """Where a history happens: in memory, or in directories."""

    source: str
    storage: str
    folder: Path

    @classmethod
    def memory(cls, folder: Path, name: str = "") -> Place:
        for store in ("source", "storage", "again"):
            forget(f"{store}{name}")
        return cls(f"memory://source{name}", f"memory://storage{name}/x", folder)

    @classmethod
    def directory(cls, folder: Path) -> Place:
        return cls(str(folder / "source"), str(folder / "storage"), folder)

    @property
    def in_memory(self) -> bool:
        return self.source.startswith("memory:")

    @property
    def root(self) -> str:
        return f"{self.storage}/larder/d"

    def settings(self, state: State, *, compact: bool = False, **more: Any) -> Any:
        source = {"url": self.source, "include": ["t/**", "v/**"]}
        storage = self.storage.replace("memory://", "s3://memory-")
        settings = run_settings(source, storage, self.folder / "out", **{**fields(state), **more})
        return replace(settings, compact=compact)


class Traffic(Recorder):
    """The calls of all stores of one run."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place

    def places(self, *methods: str) -> set[str]:
        """Keys of the source, or below the dataset's root."""
        source, root = (open_store(url).url for url in (self.place.source, self.place.root))
        urls = {
            store.url + call.key
            for store in self.stores
            for call in store.calls
            if call.method in methods
        }
        assert all(url.startswith((root, source)) for url in urls), urls
        return {
            url.removeprefix(root) if url.startswith(root) else "source:" + url.removeprefix(source)
            for url in urls
        }


@dataclass
class Run:
    """A history in one place; ``digests`` has None for a step that published nothing."""

    place: Place
    checks: bool = True
    digests: list[tuple[str, str] | None] = field(default_factory=list)
    known: dict[str, tuple[State, Expected, tuple[str, ...]]] = field(default_factory=dict)
    attempts: list[Expected] = field(default_factory=list)
    written: dict[str, bytes] = field(default_factory=dict)
    rewritten: set[str] = field(default_factory=set)

    def history(self, history: History) -> None:
        """All of it."""
        segments, ranges, patterns, rows = history.limits
        with ExitStack() as stack:
            for where, name, value in (
                (decision, "MAX_SEGMENTS", segments),
                # At most MAX_SEGMENTS - 1 segments are not small, as with the real limits.
                (decision, "SMALL", min(decision.SMALL, segments - 1)),
                (omitted, "MAX_INLINE_RANGES", ranges),
                (checker, "_INLINE", ranges),
                (derived_files, "MAX_PATTERNS", patterns),
                (checker, "_PATTERNS", patterns),
            ):
                stack.enter_context(mock.patch.object(where, name, value))
            defaults = read_manifest.__kwdefaults__
            stack.enter_context(mock.patch.dict(defaults, {"batch_rows": rows}))
            self._most = segments
            state, past = history.first, []
            self._step(state, Step(()), set())
            for step in history.steps:
                past.append(state)
                touched: set[str] = set()
                for edit in step.edits:
                    state, more = edited(state, edit, past)
                    touched |= more
                self._step(state, step, touched)
            if self.checks:
                self._check_past()

    def _step(self, state: State, step: Step, touched: set[str]) -> None:
        self._write(state, touched)
        self.attempts.append(expected(state))
        before = self._current()
        if step.stop is not None and not self._stopped(state, step):
            step = step._replace(stop=None)
        if step.stop is not None:
            if self.checks:
                root = open_store(self.place.root)
                check_all(root)
            if step.abandoned:
                self._note(state, before, step)
                self.digests.append(None)
                return
        self._prepare(state, step, before)

    def _write(self, state: State, touched: set[str]) -> None:
        """Make the source what it has to be; without need, nothing is written."""
        objects = {**state.objects, LABEL_FILE: state.label_file()}
        source = open_store(self.place.source)
        for key in self.written.keys() - objects.keys():
            source.delete(key)
        for key, data in objects.items():
            if self.written.get(key) != data or key in touched:
                if key in self.written:
                    self.rewritten.add(key)
                source.put(key, data)
        self.rewritten |= {key for key in objects if key not in self.written}
        self.written = dict(objects)

    def _current(self) -> VersionDocument | None:
        """The version that the tag names."""
        root = open_store(self.place.root)
        tag = read_tag(root, "latest")
        if tag is None:
            return None
        return read_version(root, tag.version)

    def _stopped(self, state: State, step: Step) -> bool:
        """A run that is killed; false if it ended before."""
        stop = Stop(step.stop)
        forget_manifests()
        try:
            with between(lambda store: StoppingStore(store, stop)):
                prepare(self.place.settings(state, compact=step.compact))
        except Stopped:
            return True
        except LarderError:
            return False
        return False

    def _verify(self, version: str, state: State) -> None:
        """What the checker accepts, `larder verify` does too."""
        asked = VerifySettings(self.place.settings(state), version)
        with between():
            document = verify(asked, InlineRunner(1, StageTimes()))
        assert (document["status"], document["version"]) == ("intact", version)

    def _note(self, state: State, before: VersionDocument | None, step: Step) -> None:
        """A run that was killed may have moved the tag."""
        now = self._current()
        if now is not None and (before is None or now.id != before.id):
            classes = self._classes(state, before, step)
            self.known[now.id] = (state, expected(state), classes)

    def _prepare(self, state: State, step: Step, before: VersionDocument | None) -> None:
        """A run that is not stopped."""
        planned = self._plan(state, step) if self.checks else None
        traffic = Traffic(self.place)
        document = self._run(state, step, traffic)
        if document is None:
            self.digests.append(None)
            return
        now = self._current()
        assert now is not None
        assert document["version"] == now.id
        self.digests.append((now.id, now.digest))
        if not self.checks:
            return
        found, classes = expected(state), self._classes(state, before, step)
        if before is not None and now.id == before.id and self._same_inputs(state, before):
            classes = before.classes  # nothing was planned, whatever growth.mode is now
        if planned is not None and planned["status"] == "planned":
            assert planned["version"] == now.id
        published = self._check(now, state, found, classes)
        assert len(now.segments) <= self._most, "too many segments"
        if before is not None:
            self._check_costs(state, before, found, traffic)
        self.known[now.id] = (state, found, classes)
        self._check_unchanged(state, step)
        if step.compact:
            self._check_compaction(state, now, published)

    def _plan(self, state: State, step: Step) -> dict[str, Any]:
        traffic = Traffic(self.place)
        forget_manifests()
        with between(traffic):
            planned = prepare(self.place.settings(state, compact=step.compact), plan_only=True)
        assert not traffic.places(*WRITES), "a plan writes"
        return planned

    def _run(self, state: State, step: Step, traffic: Traffic) -> dict[str, Any] | None:
        """The document of a run; None if it fails, as it has to with a bad sample."""
        fails = bool(expected(state).bad) and state.options["on_bad_sample"] == "fail"
        settings = self.place.settings(state, compact=step.compact)
        forget_manifests()
        with between(traffic):
            if not fails:
                return prepare(settings)
            before = self._current()
            with pytest.raises(RunError):
                prepare(settings)
        assert self._current() == before, "a run that fails publishes nothing"
        return None

    def _same_inputs(self, state: State, before: VersionDocument) -> bool:
        then, _, _ = self.known[before.id]
        return then.objects == state.objects and all(
            then.options[name] == state.options[name] for name in INPUTS
        )

    def _classes(self, state: State, before: VersionDocument | None, step: Step) -> tuple[str, ...]:
        """The classes in the order of their numbers."""
        found = expected(state)
        if state.options["labels"] == "none":
            return ()
        if state.options["labels"] == "pinned":
            return tuple(sorted(CLASSES, reverse=True))
        known: tuple[str, ...] = ()
        if before is not None and (state.options["mode"] == "append" or step.compact):
            known = before.classes
        return (*known, *sorted(found.names - set(known), key=str.encode))

    def _check(
        self,
        version: VersionDocument,
        state: State,
        found: Expected,
        classes: tuple[str, ...] | None,
    ) -> Published:
        """What every reader sees is the model."""
        root = open_store(self.place.root)
        published = check_version(root, version.id)
        self._verify(version.id, state)
        if classes is not None:
            assert version.classes == classes, "the numbers of classes"
        _same_samples(published, found)
        assert version.skipped == len(found.bad)
        if state.options["format"] == "webdataset" and _all_tar(root, version):
            clean = {split for split, facts in version.splits.items() if not facts.omitted}
            read = published.read_by_pattern(root)
            for split in clean:
                assert read[split] == published.samples[split], "by pattern"
        data = larder.open(f"{self.place.root}@{version.id}", cache_dir=self.place.folder / "c")
        for split, own in published.samples.items():
            wanted = [(sample.key, sample.label, sample.parts) for sample in own]
            assert [tuple(sample) for sample in data.samples(split)] == wanted, "by index"
            if version.cache and own:
                self._check_cache(data, split, own, version)
        return published

    def _check_cache(self, data: Any, split: str, own: Any, version: VersionDocument) -> None:
        assert version.cache is not None
        with data.cache(split, verify=True) as reader:
            assert len(reader) == len(own), "records of the cache"
            rows = list(reader)
            batch = reader.batch(range(len(own)), fields=["key"])["key"]
            for number, (record, sample) in enumerate(zip(rows, own, strict=True)):
                assert record["key"] == sample.key == batch[number]
                assert reader[number]["key"] == sample.key
                if LABEL_EXT in sample.parts:
                    assert int(record["label"]) == sample.label
                for ext, part in sample.parts.items():
                    decoded = version.cache.kind == "decoded" and ext == "png"
                    if ext != LABEL_EXT and not decoded:
                        assert bytes(record[ext]) == part, f"{sample.key}.{ext}"

    def _check_costs(
        self, state: State, before: VersionDocument, found: Expected, traffic: Traffic
    ) -> None:
        """What did not change is not read or copied."""
        then_state, then, _ = self.known[before.id]
        parts, then_parts = found.parts(), then.parts()
        new = {key for key in parts if parts[key] != then_parts.get(key)}
        then_options, options = then_state.options, state.options
        same_check = checked(then_options) == checked(options) and (
            then_options["on_bad_sample"] == options["on_bad_sample"]
        )
        new |= {key for key in found.bad if not same_check or found.bad[key] != then.bad.get(key)}
        due = {
            f"{key}.{ext}" for key in new for ext in (parts.get(key) or found.bad.get(key) or {})
        }
        if not self.place.in_memory:  # etags do not tell contents apart
            due |= self.rewritten
        read = {key for key in traffic.places("open", "get") if key.startswith("source:")}
        read -= {f"source:{LABEL_FILE}"}
        assert read <= {f"source:{key}" for key in due}, "read without need"
        copied = {key for key in traffic.places(*READS, *WRITES) if key.startswith("mirror/")}
        assert copied <= {f"mirror/{key}" for key in due}, "copied without need"

    def _check_unchanged(self, state: State, step: Step) -> None:
        """A run without a change writes nothing, and reads no shard."""
        traffic = Traffic(self.place)
        forget_manifests()
        with between(traffic):
            document = prepare(self.place.settings(state, compact=step.compact))
        assert document["status"] == "reused"
        assert not traffic.places(*WRITES), "an unchanged run writes"
        read = {key for key in traffic.places("open", "get") if key != f"source:{LABEL_FILE}"}
        wrong = ("source:", "mirror/")
        if step.compact and state.options["count_min"] and not self.place.in_memory:
            # Whether it is compact takes a plan, in which touched objects are compared.
            read -= {f"source:{key}" for key in self.rewritten}
        assert not [key for key in read if key.startswith(wrong) or "/shards/" in key], read

    def _check_compaction(
        self, state: State, version: VersionDocument, published: Published
    ) -> None:
        """It equals a first build with the same order of classes, to the byte."""
        assert len(version.segments) == 1
        assert not version.omitted
        name = "memory://again"
        forget("again")
        place = Place(self.place.source, name, self.place.folder / "again")
        more: dict[str, Any] = {"mirror": False}
        if version.classes:
            labels = fields(state)["labels"] or {}
            more["labels"] = {**labels, "classes": list(version.classes)}
        forget_manifests()
        with between():
            document = prepare(place.settings(state, **more))
        root = open_store(place.root)
        first = check_version(root, document["version"])
        assert _by_name(first) == _by_name(published), "the shards of a compaction"
        assert first.version.digest == version.digest

    def _check_past(self) -> None:
        """Every version is whole, and still what it was."""
        root = open_store(self.place.root)
        versions = check_all(root)
        for version, published in versions.items():
            if version in self.known:
                _same_samples(published, self.known[version][1])
                assert published.version.classes == self.known[version][2]
            else:
                assert any(_is_same(published, each) for each in self.attempts)


def _same_samples(published: Published, found: Expected) -> None:
    classes = published.version.classes
    assert set(published.samples) == set(found.samples), "the splits"
    for split, own in published.samples.items():
        keys = [sample.key for sample in own]
        assert sorted(keys) == sorted(found.samples[split]), f"the samples of {split}"
        for sample in own:
            name, parts = found.samples[split][sample.key]
            there = {ext: data for ext, data in sample.parts.items() if ext != LABEL_EXT}
            assert there == parts, f"the parts of {sample.key}"
            label = None if sample.label is None else classes[sample.label]
            assert label == name, f"the label of {sample.key}"


def _is_same(published: Published, found: Expected) -> bool:
    try:
        _same_samples(published, found)
    except AssertionError:
        return False
    return True


def _all_tar(root: Store, version: VersionDocument) -> bool:
    patterns = (pattern for facts in version.splits.values() for pattern in facts.patterns)
    return all(pattern.endswith(".tar") for pattern in patterns)


def _by_name(published: Published) -> Mapping[str, str]:
    """sha256 by split and name."""
    return {"/".join(path.split("/")[-2:]): sha for path, sha in published.shards.items()}
