"""Every scene with every fault of every store: what is published is right, or there is one error.

Whatever happened, the scene succeeds once the fault is over, and nothing is left over.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import tests.support.memory  # noqa: F401 - registers memory://
from larder.cli.signals import interruptible, interrupting
from larder.config.urls import Access
from larder.errors import LarderError
from larder.store import RetryPolicy, open_store
from larder.store.interrupt import Interrupt
from tests.faults import scenes
from tests.faults.faults import (
    DISK,
    FAULTS,
    GONE,
    SIGNALS,
    Call,
    Disk,
    Fault,
    Server,
    State,
    failing,
    faulty,
)
from tests.faults.scenes import SCENES, Site
from tests.support.certificates import local_certificate
from tests.support.fake_gcs import FakeGcs
from tests.support.fake_s3 import FakeS3

BUCKETS: dict[str, Callable[[], Any]] = {
    "s3": FakeS3,
    "s3 https": FakeS3,
    "s3 without MD5": lambda: FakeS3(md5=False),
    "s3 without conditions": lambda: FakeS3(conditional=False),
    "gcs": lambda: FakeGcs(page_keys=7),
}
DISK_FAULTS = [*DISK, "EIO on", "denied on", *SIGNALS]
CELLS = [(scene, "directory", fault) for scene in SCENES for fault in DISK_FAULTS]
CELLS += [
    (scene, store, fault) for scene in SCENES for store in BUCKETS for fault in (*FAULTS, *SIGNALS)
]
CHOSEN = {
    cell
    for number, (scene, store) in enumerate(zip(SCENES, cycle(["directory", *BUCKETS])))
    for cell in [each for each in CELLS if each[:2] == (scene, store)][number % 3 :: 7]
    if cell[2] not in SIGNALS
} | {("grow", "directory", "KILL"), ("compact", "directory", "KILL")}
"""Cells of every push: each scene in one store, as its undisturbed run takes seconds."""
STAYS = "(copy|mirror)/(work/|manifest-|failures-|pruned-)|/work/(probe-|replaced/)"
"""Leftovers: of stopped copies for a week, of runs for a day, and lists of deleted objects."""
INTERRUPTED = 130
REFUSED = 3

PRELOADED = [
    "larder.pipeline.preparing",
    "larder.pipeline.planned_build",
    "larder.verify.verifying",
    "larder.copy.pruning",
    "pytest",
]

disk = Disk()


@contextmanager
def quick() -> Iterator[None]:
    """Wait for nothing: neither between repetitions, nor for a disk, nor a minute for an answer."""
    policy = RetryPolicy(attempts=3, first_delay_seconds=0)
    with (
        mock.patch.dict(open_store.__kwdefaults__, retry=policy),
        mock.patch.object(Interrupt, "sleep", lambda self, _: self.check()),
        mock.patch.object(Access, "silence_seconds", 1.0),
        mock.patch.object(os, "fsync"),
    ):
        yield


@dataclass
class World:
    """A scene in a store: the state before it, its undisturbed calls, and the keys after it."""

    state: State
    asked: list[Any]
    calls: list[int]
    made: list[int]
    keys: list[str]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    certificate = local_certificate(tmp_path_factory.mktemp("certificate"))
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("AWS_CA_BUNDLE", str(certificate.path))
        https = {"s3 https": certificate.context()}
        yield {
            name: stack.enter_context(faulty(make(), https.get(name)))
            for name, make in BUCKETS.items()
        }


@pytest.fixture
def server(request, servers, monkeypatch) -> Server | None:
    store = request.node.callspec.params["store"]
    found = servers.get(store)
    if found:
        name = "STORAGE_EMULATOR_HOST" if store == "gcs" else "AWS_ENDPOINT_URL"
        monkeypatch.setenv(name, found.endpoint)
    return found


def site_of(store: str, folder: Path) -> Site:
    urls = {"directory": str(folder / "there"), "gcs": "gs://bucket"}
    return Site(urls.get(store, "s3://bucket"), folder)


worlds: dict[tuple[str, str], World] = {}


def world_of(scene: str, store: str, server: Server | None, folder: Path) -> World:
    if (scene, store) not in worlds:
        site = site_of(store, folder / "undisturbed")
        if server:
            server.reset(({}, {}))
        SCENES[scene].before(site)
        state = server.state if server else ({}, {})
        if server:
            server.reset(state)
        with disk.watched(folder):
            scenes.run(scene, site)
        asked = server.asked[:] if server else []
        calls, made = [*range(disk.calls)], disk.made
        scenes.run(scene, site)
        SCENES[scene].check(site)
        worlds[scene, store] = World(state, asked, calls, made, names(site))
    return worlds[scene, store]


def names(site: Site) -> list[str]:
    """Return the keys of all objects, without digests, reports of runs and leases."""
    every = scenes.keys(site.url)
    own = (key for key in every if "/runs/" not in key and "/leases/" not in key)
    return sorted(re.sub("[0-9a-f]{8,}", "*", key) for key in own)


def play(scene: str, site: Site, environment: dict[str, str], at: int, number: int) -> None:
    """Run a scene in a process of its own, which sends itself a signal at a change of its disk."""
    os.environ.update(environment)
    act = lambda: os.kill(os.getpid(), number)  # noqa: E731
    stops = scene not in ("epoch", "function")
    try:
        with (
            quick(),
            interrupting(json=False),
            interruptible(scenes.STOP, lambda _: None) if stops else nullcontext(),
            disk.watched(site.here, at, act) if number else nullcontext(),
        ):
            scenes.run(scene, site)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    except LarderError:
        os._exit(REFUSED)


def signalled(scene: str, site: Site, number: int, server: Server | None, at: Any) -> str:
    """Play a scene in a process that gets a signal at a call; return how it ended."""
    methods = multiprocessing.get_context("forkserver")
    methods.set_forkserver_preload(PRELOADED)
    own = 0 if server else number
    process = methods.Process(
        target=play, args=(scene, site, dict(os.environ), at if own else -1, own)
    )
    if server:
        ready = threading.Event()

        def kill(server: Server, ask: Any) -> Any:
            ready.wait()
            os.kill(process.pid or 0, number)
            return GONE if number == SIGNALS["KILL"] else server.backend.answer(ask)

        server.fault, server.at = Fault(kill), at
        process.start()
        ready.set()
    else:
        process.start()
    process.join()
    assert process.exitcode in (0, REFUSED, INTERRUPTED, -number), process.exitcode
    return {0: "ok", REFUSED: "refused"}.get(process.exitcode, "stopped")


def attempt(scene: str, site: Site) -> str:
    """Play a scene with a fault; return ``ok``, or the code of its one error."""
    try:
        scenes.run(scene, site)
    except LarderError as caught:
        error = caught
    else:
        return "ok"
    assert len(str(error).splitlines()) == 1, str(error)
    return f"refused: {error.code}"


def chosen(cell: tuple[str, str, str], world: World) -> Any:
    """The call of a scene that a fault is of: another in every cell, and the same in each run."""
    dice = random.Random(f"{cell} {os.environ.get('LARDER_FAULTS', '')}")
    if cell[1] == "directory":
        calls = world.made if cell[2] == "full" else world.calls
        return dice.choice(calls) if calls else None
    fault = FAULTS.get(cell[2])
    of_fault: list[Call] = sorted(
        call for ask, call in world.asked if fault is None or fault.about(ask)
    )
    return dice.choice(of_fault) if of_fault else None


def disturbed(cell: tuple[str, str, str], site: Site, server: Server | None, at: Any) -> str:
    scene, _, fault = cell
    if fault in SIGNALS:
        return signalled(scene, site, SIGNALS[fault], server, at)
    if server:
        server.fault, server.at = FAULTS[fault], at
        return attempt(scene, site)
    name, _, lasts = fault.partition(" ")
    with disk.watched(site.here, at, failing(DISK[name]), lasts=bool(lasts)):
        return attempt(scene, site)


@pytest.mark.parametrize(
    ("scene", "store", "fault"),
    [
        pytest.param(
            *cell,
            id="-".join(cell),
            marks=pytest.mark.push if cell in CHOSEN else pytest.mark.nightly,
        )
        for cell in CELLS
    ],
)
def test_matrix(scene, store, fault, server, tmp_path, tmp_path_factory, record_property):
    cell = (scene, store, fault)
    record_property("cell", cell)
    with quick():
        world = world_of(scene, store, server, tmp_path_factory.mktemp("world"))
        at = chosen(cell, world)
        site = site_of(store, tmp_path)
        if server:
            server.reset(world.state)
        else:
            SCENES[scene].before(site)
        if at is None:
            record_property("outcome", "none")
            return
        outcome = disturbed(cell, site, server, at)
        record_property("outcome", outcome)
        if server:
            server.fault = None
        kept = scene == "prune" and fault[:3] in ("404", "412", "wea")  # till the next one
        if outcome == "ok" and not kept:
            SCENES[scene].check(site)
        assert outcome == "ok" or fault not in FAULTS or not FAULTS[fault].passes, outcome
        scenes.run(scene, site)
        SCENES[scene].check(site)
        if fault in DISK_FAULTS:
            scenes.sweep(tmp_path)
        if store != "directory" or not fault.endswith(" on"):  # which removes nothing any more
            assert scenes.drafts(tmp_path) == []
        left, wanted = Counter(names(site)), Counter(world.keys)
        assert [key for key in left - wanted if not re.search(STAYS, key)] == []
        assert [key for key in wanted - left if "/work/" not in key] == []
