"""A clean that is stopped at any write, and one during which others publish, tag, lease and clean.

Whatever happens, what is published is whole, tags name versions, and leases keep theirs. Others
either succeed or are refused because of the clean, and succeed once that has ended.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from catalog_lab import cleaned, drop_all, leased, runner, tagged
from pipeline_lab import DOCUMENT, Lab, images, memory_lab, opened, png
from required import at_night, nightly

import larder
from larder.errors import LarderError
from larder.pipeline.emit import emit
from larder.store.base import Store
from larder.verify.run import VerifySettings, verify
from larder.versions.leases import read_leases
from larder.versions.tags import read_tag, tag_names
from tests.support.memory import forget
from tests.support.runs import between
from tests.support.stores import (
    DelegatingStore,
    Stop,
    Stopped,
    StoppingStore,
    UnconditionalStore,
    keys_of,
)

pytestmark = pytest.mark.push

STEP = 1 if nightly() else 7
"""Calls from one at which something happens to the next."""

FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "shards": {"bytes": 4_000},
    "cache": {"records": "encoded"},
    "growth": {"mode": "rebuild"},
}


class Calls:
    """Counts the calls of all stores that share it, and lets something happen before one of them.

    What happens then is not counted.
    """

    def __init__(self, at: int | None = None, act: Callable[[], object] = int) -> None:
        self.at, self.act = at, act
        self.count = 0
        self._acting = False

    def before(self) -> None:
        if self._acting:
            return
        if self.count == self.at:
            self._acting = True
            self.act()
            self._acting = False
        self.count += 1


class CountingStore(DelegatingStore):
    def __init__(self, inner: Store, calls: Calls) -> None:
        super().__init__(inner)
        self._calls = calls

    def around(self, method: str, key: str, call: Callable[..., Any], **options: Any) -> Any:
        self._calls.before()
        return call(**options)


def copy(theirs: Store, ours: Store) -> None:
    """In the order in which it was written: which version is the newest depends on that."""
    infos = [info for page in theirs.list() for info in page]
    for info in sorted(infos, key=lambda info: info.modified_us):
        ours.put(info.key, theirs.get(info.key))


@dataclass
class Old:
    """A storage with an old version, which nothing needs, and the current one; copied for each
    case. ``wrap``: what its store does about conditions.
    """

    lab: Lab
    old: str
    new: str
    wrap: Callable[[Store], Store] = field(default=lambda store: store)

    @contextmanager
    def copied(self) -> Iterator[Old]:
        name = uuid.uuid4().hex
        other = replace(self.lab, source=f"memory://{name}-source", storage=f"s3://memory-{name}")
        with self.lab.opened_root() as theirs, other.opened_root() as ours:
            copy(theirs, ours)
        with opened(str(self.lab.source)) as theirs, opened(str(other.source)) as ours:
            copy(theirs, ours)
        yield replace(self, lab=other)
        forget(name)
        forget(f"{name}-source")

    def with_calls(self, calls: Calls, act: Callable[[], object]) -> LarderError | None:
        """Do something, and what happens at one of its calls; returns the error it ended with."""
        with between(lambda store: CountingStore(self.wrap(store), calls)):
            return refusal(act)

    def check(self) -> None:
        """What is published is whole, and what tags and leases name is published."""
        found = self.lab.check()
        with self.lab.opened_root() as root:
            for name in tag_names(root):
                tag = read_tag(root, name)
                assert tag is not None
                assert tag.version in found
            for each in read_leases(root):
                if not each.lease.segments:
                    assert set(each.lease.versions) <= found.keys(), each


def refusal(act: Callable[[], object]) -> LarderError | None:
    try:
        act()
    except LarderError as error:
        return error
    return None


@pytest.fixture(params=["kept", "ignored"])
def old(request, tmp_path):
    lab = memory_lab(tmp_path, images("ab", 2), **FIELDS)
    wrap = UnconditionalStore if request.param == "ignored" else (lambda store: store)
    with between(wrap):
        first = lab.prepare()["version"]
        lab.add({"a/00.png": png(90)})
        second = lab.prepare()["version"]
        drop_all(lab)
    return Old(lab, first, second, wrap)


def again(old: Old) -> DOCUMENT:
    """The source is what it was: the run leads to the old version."""
    old.lab.add({"a/00.png": images("ab", 2)["a/00.png"]})
    return old.lab.prepare()


def grow(old: Old) -> DOCUMENT:
    """Of the old version, which the tag is moved to, something is shared."""
    tagged(old.lab, "latest", old.old)
    old.lab.add({"a/00.png": images("ab", 2)["a/00.png"], "c/00.png": png(91)})
    return old.lab.prepare(growth={"mode": "append"})


def read(old: Old) -> None:
    """The old version, whole; what a clean has deleted meanwhile is missing, never wrong."""
    data = larder.open(f"{old.lab.storage}/larder/d@{old.old}".replace("s3://memory-", "memory://"))
    assert len(list(data.samples("train"))) == 4


ACTS: dict[str, Callable[[Old], object]] = {
    "publish": again,
    "grow": grow,
    "tag": lambda old: tagged(old.lab, "v1", old.old),
    "lease": lambda old: leased(old.lab, old.old, "bob"),
    "emit": lambda old: emit(old.lab.settings(), old.old),
    "repair": lambda old: verify(
        VerifySettings(old.lab.settings(), old.old, repair=True), runner()
    ),
    "read": read,
    "clean": lambda old: cleaned(old.lab),
}


def test_a_clean_is_stopped_at_any_write(old):
    undisturbed = Stop()
    with old.copied() as whole:
        with between(lambda store: StoppingStore(whole.wrap(store), undisturbed)):
            cleaned(whole.lab)
        with whole.lab.opened_root() as root:
            left = keys_of(root)
    writes = len(undisturbed.writes)
    assert writes > 20
    for after in sorted({*range(0, writes, STEP), writes - 1}):
        with old.copied() as place:
            stop = Stop(after)
            with (
                between(lambda store, at=stop: StoppingStore(place.wrap(store), at)),
                suppress(Stopped),
            ):
                cleaned(place.lab)
            place.check()
            with between(place.wrap):
                if refusal(lambda place=place: tagged(place.lab, "v1", place.old)) is None:
                    tagged(place.lab, "v1", delete=True)
                place.check()
                cleaned(place.lab)
                with place.lab.opened_root() as root:
                    # The object that was to tell the time may be left.
                    assert [key for key in keys_of(root) if "work/probe-" not in key] == left
                assert again(place)["version"] == place.old
            place.check()


@pytest.mark.parametrize("name", at_night(*ACTS, but=("publish", "lease")))
def test_others_act_at_any_call_of_a_clean(old, name):
    _at_any_call(old, cleaned_here, ACTS[name])


@pytest.mark.parametrize("name", at_night(*ACTS, but=("grow", "tag")))
def test_a_clean_happens_at_any_call_of_others(old, name):
    _at_any_call(old, ACTS[name], cleaned_here)


def cleaned_here(place: Old) -> DOCUMENT:
    return cleaned(place.lab)


REFUSALS = {None, "version.cleaned", "version.missing", "version.superseded"}
REFUSALS |= {"damage.size", "object.missing"}  # of who reads a version that is being deleted


def _at_any_call(
    old: Old, act: Callable[[Old], object], meanwhile: Callable[[Old], object]
) -> None:
    calls = Calls()
    with old.copied() as place:
        assert place.with_calls(calls, lambda: act(place)) is None
    for at in sorted({*range(0, calls.count, STEP), calls.count - 1}):
        with old.copied() as place:
            errors: list[LarderError | None] = []

            def other(place: Old = place, errors: list[LarderError | None] = errors) -> None:
                errors.append(refusal(lambda: meanwhile(place)))

            errors.append(place.with_calls(Calls(at, other), lambda place=place: act(place)))
            place.check()
            assert {error and error.code for error in errors} <= REFUSALS, errors
            with between(place.wrap):
                cleaned(place.lab)
                place.check()
                again(place)
                place.check()
