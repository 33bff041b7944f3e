"""Runs a history in a place, and compares what every reader sees with the model, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from larder.jobs.step_runner import InlineRunner
from larder.manifest.manifest_files import read_manifest
from larder.pipeline.preparing import prepare
from larder.progress import StageTimes
from larder.samples.naming import LABEL_EXT
from larder.segments import derived_files
from larder.store import open_store
from larder.verify.verifying import VerifySettings, verify
from larder.versions import omitted
from larder.versions.documents import VersionDocument
from larder.versions.publish import read_version
from larder.versions.tags import read_tag
from tests.support import checker
from tests.support.checked_segment import SampleContent
from tests.support.checker import Published, check_all, check_version
from tests.support.memory import forget
from tests.support.runs import between, forget_manifests, run_settings
from tests.support.stores import WRITES, Recorder, Stop, Stopped, StoppingStore


@dataclass(frozen=True)
class Place:
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
        return settings._replace(compact=compact)


def calls(recorder: Recorder, place: Place, *methods: str) -> set[str]:
    """The keys that a run asked for, as ``source:KEY``, or below the dataset's root."""
    source, root = (open_store(url).url for url in (place.source, place.root))
    urls = {
        store.url + call.key
        for store in recorder.stores
        for call in store.calls
        if call.method in methods
    }
    assert all(url.startswith((root, source)) for url in urls), urls
    return {
        url.removeprefix(root) if url.startswith(root) else "source:" + url.removeprefix(source)
        for url in urls
    }


@contextmanager
def limited(history: History) -> Iterator[None]:
    segments, ranges, patterns, rows = history.limits
    defaults = read_manifest.__kwdefaults__
    assert defaults
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "MAX_SEGMENTS", segments)
        # At most MAX_SEGMENTS - 1 segments are not small, as with the real limits.
        patch.setattr(decision, "SMALL", min(decision.SMALL, segments - 1))
        patch.setattr(omitted, "MAX_INLINE_RANGES", ranges)
        patch.setattr(checker, "_INLINE", ranges)
        patch.setattr(derived_files, "MAX_PATTERNS", patterns)
        patch.setattr(checker, "_PATTERNS", patterns)
        patch.setitem(defaults, "batch_rows", rows)
        yield


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
        with limited(history):
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
        if step.stop is not None and self._stopped(state, step):
            if self.checks:
                check_all(open_store(self.place.root))
            if step.abandoned:
                now = self._current()
                if now is not None and (before is None or now.id != before.id):
                    classes = self._classes(state, before, step)
                    self.known[now.id] = (state, expected(state), classes)
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
        root = open_store(self.place.root)
        tag = read_tag(root, "latest")
        if tag is None:
            return None
        return read_version(root, tag.version)

    def _stopped(self, state: State, step: Step) -> bool:
        """A run that is killed; false if it ended before."""
        stop = Stop(step.stop)
        forget_manifests()
        with suppress(LarderError), between(lambda store: StoppingStore(store, stop)):
            try:
                prepare(self.place.settings(state, compact=step.compact))
            except Stopped:
                return True
        return False

    def _prepare(self, state: State, step: Step, before: VersionDocument | None) -> None:
        planned, _ = self._run(state, step, plan_only=True) if self.checks else (None, None)
        document, recorder = self._run(state, step)
        if document is None:
            assert self._current() == before, "a run that fails publishes nothing"
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
        assert len(now.segments) <= decision.MAX_SEGMENTS, "too many segments"
        if before is not None:
            self._check_costs(state, before, found, recorder)
        self.known[now.id] = (state, found, classes)
        self._check_unchanged(state, step)
        if step.compact:
            self._check_compaction(state, now, published)

    def _run(
        self, state: State, step: Step, *, plan_only: bool = False
    ) -> tuple[dict[str, Any] | None, Recorder]:
        """The document of a run, and its calls; None if it fails, as it has to with bad samples."""
        settings = self.place.settings(state, compact=step.compact)
        fails = bool(expected(state).bad) and state.options["on_bad_sample"] == "fail"
        forget_manifests()
        with between(recorder := Recorder()):
            if fails and not plan_only:
                with pytest.raises(RunError):
                    prepare(settings)
                return None, recorder
            document = prepare(settings, plan_only=plan_only)
        assert not plan_only or not calls(recorder, self.place, *WRITES), "a plan writes"
        return document, recorder

    def _same_inputs(self, state: State, before: VersionDocument) -> bool:
        then, _, _ = self.known[before.id]
        return then.objects == state.objects and all(
            then.options[name] == state.options[name] for name in INPUTS
        )

    def _classes(self, state: State, before: VersionDocument | None, step: Step) -> tuple[str, ...]:
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
        self, version: VersionDocument, state: State, found: Expected, classes: tuple[str, ...]
    ) -> Published:
        root = open_store(self.place.root)
        published = check_version(root, version.id)
        with between():
            asked = VerifySettings(self.place.settings(state), version.id)
            assert verify(asked, InlineRunner(1, StageTimes()))["status"] == "intact"
        assert version.classes == classes, "the numbers of classes"
        _same_samples(published, found)
        assert version.skipped == len(found.bad)
        patterns = [each for facts in version.splits.values() for each in facts.patterns]
        if all(each.endswith(".tar") for each in patterns):
            read = published.read_by_pattern(root)
            for split, facts in version.splits.items():
                assert facts.omitted or read[split] == published.samples[split], "by pattern"
        data = larder.open(f"{self.place.root}@{version.id}", cache_dir=self.place.folder / "c")
        for split, own in published.samples.items():
            wanted = [(sample.key, sample.label, sample.parts) for sample in own]
            assert [tuple(sample) for sample in data.samples(split)] == wanted, "by index"
            if version.cache and own:
                _check_cache(data, split, own, version.cache.kind)
        return published

    def _check_costs(
        self, state: State, before: VersionDocument, found: Expected, recorder: Recorder
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
        opened = calls(recorder, self.place, "open", "get")
        read = {key for key in opened if key.startswith("source:")}
        read -= {f"source:{LABEL_FILE}"}
        assert read <= {f"source:{key}" for key in due}, "read without need"
        asked = calls(recorder, self.place, "open", "get", "head", *WRITES)
        copied = {key for key in asked if key.startswith("mirror/")}
        assert copied <= {f"mirror/{key}" for key in due}, "copied without need"

    def _check_unchanged(self, state: State, step: Step) -> None:
        """A run without a change writes nothing, and reads no shard."""
        document, recorder = self._run(state, step)
        assert document is not None
        assert document["status"] == "reused"
        assert not calls(recorder, self.place, *WRITES), "an unchanged run writes"
        read = calls(recorder, self.place, "open", "get") - {f"source:{LABEL_FILE}"}
        if step.compact and state.options["count_min"] and not self.place.in_memory:
            # Whether it is compact takes a plan, in which touched objects are compared.
            read -= {f"source:{key}" for key in self.rewritten}
        assert not [key for key in read if key.startswith(("source:", "mirror/"))], read
        assert not [key for key in read if "/shards/" in key], read

    def _check_compaction(
        self, state: State, version: VersionDocument, published: Published
    ) -> None:
        """It equals a first build with the same order of classes, to the byte."""
        assert len(version.segments) == 1
        assert not version.omitted
        forget("again")
        place = Place(self.place.source, "memory://again", self.place.folder / "again")
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


def _check_cache(data: Any, split: str, own: Sequence[SampleContent], kind: str) -> None:
    with data.cache(split, verify=True) as reader:
        rows = list(reader)
        keys = reader.batch(range(len(own)), fields=["key"])["key"]
    assert list(keys) == [sample.key for sample in own]
    for record, sample in zip(rows, own, strict=True):
        assert record["key"] == sample.key
        assert LABEL_EXT not in sample.parts or int(record["label"]) == sample.label
        for ext, part in sample.parts.items():
            if ext != LABEL_EXT and (ext, kind) != ("png", "decoded"):
                assert bytes(record[ext]) == part, f"{sample.key}.{ext}"


def _by_name(published: Published) -> Mapping[str, str]:
    """sha256 by split and name."""
    return {"/".join(path.split("/")[-2:]): sha for path, sha in published.shards.items()}
