"""Random histories of a dataset that is prepared, tagged, leased and cleaned, against a model.

Runs and cleans may be killed at any write. After every step all that is published is whole, and all
that the model needs is there; after a clean that ended nothing else is.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from catalog_lab import cleaned, leased, tagged
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pipeline_lab import Lab, images, memory_lab, png
from required import nightly

from larder.errors import LarderError, SupersededError
from tests.support import memory
from tests.support.runs import between
from tests.support.stores import Stop, Stopped, StoppingStore

HOUR_US = 3600 * 1_000_000
FIELDS: dict[str, Any] = {"labels": {"from": "folder"}, "shards": {"bytes": 4_000}}
STOPS = st.none() | st.integers(0, 60)
NAMES = st.sampled_from(["v1", "v2"])
NUMBERS = st.integers(0, 9)


class Cleaning(RuleBasedStateMachine):
    """What is published, in this order; and what names it, leases with the hours that they last."""

    lab: Lab

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.name = uuid.uuid4().hex
        self.lab = memory_lab(Path(self.folder.name), images("ab", 2), name=self.name, **FIELDS)
        self.order: list[str] = []
        self.tags: dict[str, str] = {}
        self.leases: dict[str, tuple[str, int]] = {}
        self.unfinished = False
        """Whether a run was killed, which leaves its lease for a week, or a clean was."""
        self.prepare(0, None, "append", None)

    def teardown(self) -> None:
        memory.forget(self.name)
        memory.forget(f"{self.name}-source")
        self.folder.cleanup()

    @property
    def needed(self) -> set[str]:
        return {*self.tags.values(), *(version for version, _ in self.leases.values())}

    def killed(self, after: int | None, act: Any) -> Any:
        """The result of something, None if it was killed; a refusal is due to a killed clean."""
        stop = Stop(after)
        with between(lambda store: StoppingStore(store, stop)):
            try:
                return act()
            except Stopped:
                self.unfinished = True
            except SupersededError as error:
                if error.code != "version.cleaned" or not self.unfinished:
                    raise
        return None

    @rule(
        number=NUMBERS,
        other=st.none() | NUMBERS,
        mode=st.sampled_from(["append", "rebuild"]),
        after=STOPS,
    )
    def prepare(self, number: int, other: int | None, mode: str, after: int | None) -> None:
        self.lab.add({"a/00.png": png(200 + number)})
        if other is not None:
            self.lab.add({f"b/{10 + other}.png": png(300 + other)})
        self._run(mode, after)

    @rule(after=STOPS)
    def compact(self, after: int | None) -> None:
        self._run("append", after, compact=True)

    def _run(self, mode: str, after: int | None, *, compact: bool = False) -> None:
        run = self.lab.compact if compact else self.lab.prepare
        document = self.killed(after, lambda: run(growth={"mode": mode}))
        published = self.lab.check()
        self.order += [version for version in published if version not in self.order]
        self.tags["latest"] = self.lab.tag.version
        if document is not None:
            assert document["version"] == self.tags["latest"]
            name = f"config-c-{document['version']}"
            if document["status"] == "built" or name in self._lease_names():
                self.leases[name] = document["version"], 30 * 24

    def _lease_names(self) -> set[str]:
        with between():
            return {each["name"] for each in leased(self.lab)["leases"]}

    @rule(name=NAMES, which=NUMBERS, after=STOPS)
    def tag(self, name: str, which: int, after: int | None) -> None:
        version = self.order[which % len(self.order)]
        document = self.killed(after, lambda: tagged(self.lab, name, version))
        if document is not None or self._names(name, version):
            self.tags[name] = version

    def _names(self, name: str, version: str) -> bool:
        """Whether it was killed right after."""
        with between(), suppress(LarderError):
            return bool(tagged(self.lab, name)["version"] == version)
        return False

    @precondition(lambda self: len(self.tags) > 1)
    @rule(name=NAMES)
    def delete_tag(self, name: str) -> None:
        if self.tags.pop(name, None):
            with between():
                tagged(self.lab, name, delete=True)

    @rule(which=NUMBERS, days=st.integers(1, 3))
    def lease(self, which: int, days: int) -> None:
        version = self.order[which % len(self.order)]
        document = self.killed(None, lambda: leased(self.lab, version, "bob", days))
        for each in document["leases"] if document else ():
            if each["versions"] == [version] and each["holder"] == "bob":
                self.leases[each["name"]] = version, 24 * days

    @rule()
    def drop_leases(self) -> None:
        with between():
            names = [each["name"] for each in leased(self.lab)["leases"]]
            leased(self.lab, drop=names)
        self.leases = {}

    @rule(hours=st.sampled_from([2, 25, 24 * 8]))
    def time_passes(self, hours: int) -> None:
        """By the clock of the store."""
        objects = memory._BUCKETS[self.name].objects
        for key, each in objects.items():
            objects[key] = replace(each, modified_us=each.modified_us - hours * HOUR_US)
        left = ((name, (version, rest - hours)) for name, (version, rest) in self.leases.items())
        self.leases = {name: (version, rest) for name, (version, rest) in left if rest > 0}

    @rule(
        keep=st.integers(1, 3),
        grace=st.sampled_from(["0h", "24h"]),
        older=st.sampled_from(["0h", "0h", "30h"]),
        after=STOPS,
    )
    def clean(self, keep: int, grace: str, older: str, after: int | None) -> None:
        document = self.killed(after, lambda: cleaned(self.lab, keep, grace, older=older))
        published = self.lab.check().keys()
        newest = set(self.order[-keep:])
        assert newest <= published
        if document is not None:
            assert document["kept"].keys() <= published
        if document is not None and (grace, older) == ("0h", "0h") and not self.unfinished:
            assert published == self.needed | newest
            with self.lab.opened_root() as root:
                named = {key.split("/")[1] for page in root.list("segments/") for key, *_ in page}
            uses = [each.version.segments for each in self.lab.check().values()]
            assert named == {use.id for segments in uses for use in segments}
        self.order = [version for version in self.order if version in published]

    @precondition(lambda self: self.unfinished)
    @rule()
    def end_what_was_killed(self) -> None:
        self.drop_leases()
        with between():
            cleaned(self.lab, 1, "0h")
        self.unfinished = False
        published = self.lab.check().keys()
        self.order = [version for version in self.order if version in published]

    @invariant()
    def what_is_needed_is_whole(self) -> None:
        if hasattr(self, "order"):
            published = self.lab.check().keys()
            assert self.needed <= published


EXAMPLES = int(os.environ.get("LARDER_HISTORIES", "100" if nightly() else "3"))


@pytest.mark.push
@pytest.mark.timeout(300 + 60 * EXAMPLES)
def test_histories_with_cleans():
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    few = settings(max_examples=EXAMPLES, stateful_step_count=15, suppress_health_check=slow)
    run_state_machine_as_test(Cleaning, settings=settings(few, deadline=None))
