"""Others publish, tag, lease, read and repair at any call of a clean; cleans at any call of theirs.

Whatever happens, what is published is whole, and tags and leases name what is published. Others
either succeed or are refused because of the clean. Cleans that are killed, and more commands that
overlap: tests/oracle/test_oracle_cleaning.py.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from catalog_lab import cleaned, drop_all, leased, runner, tagged
from pipeline_lab import DOCUMENT, Lab, images, memory_lab, png
from required import at_night, nightly

import larder
from larder.errors import LarderError
from larder.pipeline.configs import emit
from larder.store.base import Store
from larder.store.delegate import DelegatingStore
from larder.verify.verifying import VerifySettings, verify
from larder.versions.leases import read_leases
from tests.support import memory
from tests.support.runs import between
from tests.support.stores import UnconditionalStore

pytestmark = pytest.mark.push

STEP = 1 if nightly() else 7
"""Calls from one at which something happens to the next."""
SOURCE = images("ab", 2)
BUCKETS = ("races", "races-source")
FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "shards": {"bytes": 4_000},
    "cache": {"records": "encoded"},
    "growth": {"mode": "rebuild"},
}
REFUSALS = {"", "version.cleaned", "version.missing", "version.superseded"}
REFUSALS |= {"damage.size", "object.missing"}  # of readers of a version that is being deleted


class Calls:
    """The calls of all stores of a block; ``act`` happens before number ``at``, uncounted."""

    def __init__(self, at: int = -1, act: Callable[[], object] = int) -> None:
        self.at, self.act, self.count = at, act, 0

    def before(self) -> None:
        self.count += 1
        counted = self.count
        if counted - 1 == self.at:
            self.act()
        self.count = counted


class CountingStore(DelegatingStore):
    def __init__(self, inner: Store, calls: Calls) -> None:
        super().__init__(inner)
        self._calls = calls

    def around(self, method: str, key: str, call: Callable[..., Any], **options: Any) -> Any:
        self._calls.before()
        return call(**options)


@dataclass
class Old:
    """A dataset with an old version, which nothing needs, and the current one.

    ``wrap`` decides what its store does about conditions.
    """

    lab: Lab
    version: str
    wrap: Callable[[Store], Store]
    objects: dict[str, dict[str, Any]]

    @contextmanager
    def afresh(self, calls: Calls) -> Iterator[None]:
        """Within, the objects are as at first, and calls are counted."""
        for bucket, objects in self.objects.items():
            memory._BUCKETS[bucket].objects = dict(objects)
        with between(lambda store: CountingStore(self.wrap(store), calls)):
            yield

    def check(self) -> None:
        found = self.lab.check()
        with self.lab.opened_root() as root:
            for each in read_leases(root):
                if not each.lease.segments:
                    assert set(each.lease.versions) <= found.keys(), each


@pytest.fixture(params=[DelegatingStore, UnconditionalStore], ids=["kept", "ignored"])
def old(request, tmp_path):
    lab = memory_lab(tmp_path, SOURCE, name=BUCKETS[0], **FIELDS)
    with between(request.param):
        first = lab.prepare()["version"]
        lab.add({"a/00.png": png(90)})
        lab.prepare()
        drop_all(lab)
    objects = {bucket: dict(memory._BUCKETS[bucket].objects) for bucket in BUCKETS}
    yield Old(lab, first, request.param, objects)
    for bucket in BUCKETS:
        memory.forget(bucket)


def publish(old: Old) -> DOCUMENT:
    """The source is what it was: the run leads to the old version."""
    old.lab.add({"a/00.png": SOURCE["a/00.png"]})
    return old.lab.prepare()


def grow(old: Old) -> DOCUMENT:
    """Of the old version, which the tag is moved to, something is shared."""
    tagged(old.lab, "latest", old.version)
    old.lab.add({"a/00.png": SOURCE["a/00.png"], "c/00.png": png(91)})
    return old.lab.prepare(growth={"mode": "append"})


def read(old: Old) -> None:
    """What a clean has deleted meanwhile is missing, never wrong."""
    data = larder.open(f"memory://{BUCKETS[0]}/larder/d@{old.version}")
    assert len(list(data.samples("train"))) == 4


def repair(old: Old) -> DOCUMENT:
    return verify(VerifySettings(old.lab.settings(), old.version, repair=True), runner())


ACTS: dict[str, Callable[[Old], object]] = {
    "publish": publish,
    "grow": grow,
    "tag": lambda old: tagged(old.lab, "v1", old.version),
    "lease": lambda old: leased(old.lab, old.version, "bob"),
    "emit": lambda old: emit(old.lab.settings(), old.version),
    "repair": repair,
    "read": read,
    "clean": lambda old: cleaned(old.lab),
}
OF_CLEAN = [("clean", name) for name in ACTS]
OF_OTHERS = [(name, "clean") for name in ACTS if name != "clean"]
PUSHED = [("clean", "publish"), ("clean", "lease"), ("grow", "clean"), ("tag", "clean")]


def refusal(act: Callable[[Old], object], old: Old) -> str:
    try:
        act(old)
    except LarderError as error:
        return error.code
    return ""


@pytest.mark.parametrize(("name", "other"), at_night(*OF_CLEAN, *OF_OTHERS, but=PUSHED))
def test_one_acts_at_any_call_of_the_other(old, name, other):
    undisturbed = Calls()
    with old.afresh(undisturbed):
        ACTS[name](old)
    for at in sorted({*range(0, undisturbed.count, STEP), undisturbed.count - 1}):
        codes: list[str] = []
        meanwhile = Calls(at, lambda codes=codes: codes.append(refusal(ACTS[other], old)))
        with old.afresh(meanwhile):
            codes.append(refusal(ACTS[name], old))
        assert set(codes) <= REFUSALS
        old.check()
        with between(old.wrap):
            cleaned(old.lab)
            old.check()
            publish(old)
            old.check()
