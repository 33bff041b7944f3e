"""Random histories of the commands that write, compared with an oracle of what may be deleted.

A history follows from its seed. Stores are in memory, the test sets the clock, and a quarter of the
commands are killed at a write. Overlapping commands take turns at their calls of a store. In every
third history, the store ignores conditions. A push plays 20 histories; a night plays
``LARDER_HISTORIES`` (2,000).
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from catalog_lab import cleaned, leased, runner, tagged
from pipeline_lab import memory_lab, objects_of, opened
from required import at_night, at_push

import larder
from larder.catalog import cleaning
from larder.pipeline.configs import emit
from larder.readers import sources as renewal
from larder.store.base import ObjectInfo, Store
from larder.store.delegate import DelegatingStore
from larder.verify.verifying import VerifySettings, verify
from tests.oracle.cleaning import Keeper, Oracle, Policy, Version, units_of
from tests.support import memory
from tests.support.runs import between, forget_manifests
from tests.support.stores import Stop, StoppingStore, UnconditionalStore

HISTORIES = int(os.environ.get("LARDER_HISTORIES", "2000"))
STEPS, HOUR, DAY = 7, 3600, 86400
FOREIGN = "segments/notes.txt"
REFUSED = ("version.cleaned", "version.missing", "version.pinned", "version.superseded")
PUBLISHED = re.compile(r"(versions|segments)/\w+/(?!work/)")
Listing = dict[str, ObjectInfo]


class Clock:
    """A stand-in for the module `time`, for the store and for plans, which ask the machine."""

    monotonic = staticmethod(time.monotonic)
    now_us = 1_800_000_000_000_000

    def time_ns(self) -> int:
        self.now_us += 1
        return self.now_us * 1000


@dataclass(eq=False)
class Command:
    """A command, the beginnings of the names of tags and leases that it writes, and its end."""

    name: str
    act: Callable[..., Any]
    writes: tuple[str, ...] = ()
    policy: Policy | None = None
    stop: Stop = field(default_factory=Stop)
    document: Any = None
    error: Any = None


class Turns:
    def __init__(
        self, commands: tuple[Command, ...], chance: random.Random, wrap: Callable[[Store], Store]
    ) -> None:
        self.waiting, self.chance, self.running = [*commands], chance, commands[0]
        self._changed = threading.Condition()
        threads = [threading.Thread(target=self._run, args=(each,)) for each in commands]
        with between(lambda store: TurnStore(StoppingStore(wrap(store), self.running.stop), self)):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def wait(self, command: Command, passing: float) -> None:
        """Pass the turn on with a probability, and wait until the command has it again."""
        with self._changed:
            if self.running is command and self.chance.random() < passing:
                self._pass_on()
            # A reader that is kept from command to command has the store of the first one.
            self._changed.wait_for(lambda: self.running is command or command not in self.waiting)

    def _pass_on(self) -> None:
        self.running = self.chance.choice(self.waiting or [self.running])
        self._changed.notify_all()

    def _run(self, command: Command) -> None:
        self.wait(command, 0)
        try:
            command.document = command.act()
        except BaseException as error:  # noqa: BLE001 - looked at by `History.step`
            command.error = error
        with self._changed:
            self.waiting.remove(command)
            self._pass_on()


class TurnStore(DelegatingStore):
    """Waits before every call for the turn of the command that opened it."""

    def __init__(self, inner: Store, turns: Turns) -> None:
        super().__init__(inner)
        self._turns, self._command = turns, turns.running

    def around(self, method: str, key: str, call: Callable[..., Any], **options: Any) -> Any:
        # Commands of one process wait for the one that fetches a manifest: it keeps its turn.
        self._turns.wait(self._command, 0 if key.endswith(".parquet") else 0.1)
        return call(**options)


class History:
    """A dataset in memory, and what the oracle knows of it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance, self.clock, self.oracle = random.Random(seed), Clock(), Oracle()
        self.log, self.folder, self.url = list[str](), folder, f"memory://history-{seed}/larder/d"
        self.source = {f"{name}/{n}.txt": self.text() for name in "ab" for n in range(3)}
        self.denied, self.erased = list[str](), set[bytes]()
        self.wrap = UnconditionalStore if seed % 3 == 2 else DelegatingStore
        choose = self.chance.choice
        lab = memory_lab(
            folder,
            self.source,
            name=f"history-{seed}",
            labels={"from": "folder"},
            shards={"bytes": choose([4_000, 20_000])},
            cache=choose([None, {"records": "encoded"}]),
            growth={"removals": choose(["repack", "omit"]), "mode": choose(["append", "rebuild"])},
            mirror=choose([True, False]),
            validate="none",
            cluster={
                "consumer": {"kind": "json"},
                "runner": {"workers": 1},
                "copy": {"concurrency": 1},
            },
        )
        self.lab = replace(lab, source={"url": lab.source})

    @property
    def latest(self) -> str:
        (unit,) = self.oracle.keepers["tag latest"].units
        return unit.partition("/")[2]

    def named(self, kind: str) -> list[str]:
        """Tags except ``latest``, or leases; leases of runs have random names and come last."""
        names = [name.removeprefix(kind) for name in self.oracle.keepers if name.startswith(kind)]
        return sorted({*names} - {"latest"}, key=lambda name: (name.startswith("run-"), name))

    def text(self) -> bytes:
        return self.chance.randbytes(40).hex().encode()

    def play(self, steps: int) -> None:
        """Play a number of steps, and then delete what nothing needs."""
        with ExitStack() as stack:
            stack.enter_context(between())
            for module in (memory, cleaning, renewal):
                stack.enter_context(mock.patch.object(module, "time", self.clock))
            stack.enter_context(mock.patch.object(renewal, "EVERY_SECONDS", 0.0))
            self.root = stack.enter_context(self.lab.opened_root())
            self.root.put(FOREIGN, b"notes")
            for _ in range(2):
                self.edit_and_run(kill=0)
            for _ in range(steps):
                self.go_on(self.chance.randrange(20))
            self.finish()

    def go_on(self, roll: int) -> None:
        if roll < 2:
            self.pass_hours(self.chance.choice([5, 50, 9 * 24, 31 * 24]))
        elif roll < 4:
            self.edit_and_run()
        elif roll == 4:
            self.erase(self.chance.choice(sorted(self.source)))
        elif roll == 5:
            self.repair()
        elif roll < 13:
            self.step(self.drop(self.named("lease ")))
            for _ in range(self.chance.choice([1, 2, 3])):
                self.step(self.random_clean())
                self.pass_hours(self.chance.choice([0, 7, 25, 50]))
        else:
            self.step(*(self.command() for _ in range(self.chance.choice([1, 1, 2, 2, 3]))))

    def random_clean(self) -> Command:
        choose = self.chance.choice
        older, grace = choose([0, 0, 0, 3]) * DAY, choose([0, 6, 24, 24, 48]) * HOUR
        return self.clean(Policy(choose([1, 1, 2, 3]), older, grace), mirror=choose([False, True]))

    def pass_hours(self, hours: int) -> None:
        self.log.append(f"{hours} hours pass")
        self.clock.now_us += hours * HOUR * 1_000_000

    def edit_and_run(self, **options: float) -> None:
        gone = self.chance.sample(sorted(self.source), self.chance.randrange(3))
        keys = [f"{name}/{self.chance.randrange(12)}.txt" for name in "ab"]
        self.edit(gone, {key: self.text() for key in keys if key not in self.denied})
        self.step(self.prepare(self.chance.choice(["prepare", "prepare", "compact"])), **options)

    def edit(self, gone: list[str], added: dict[str, bytes]) -> None:
        if not self.source.keys() - {*gone} | added.keys():  # an empty source is refused
            added = {f"a/{len(self.log)}-more.txt": self.text()}
        self.log.append(f"source: {gone} go, {sorted(added)} come")
        with opened(self.lab.source["url"]) as store:
            for key in gone:
                store.delete(key)
                del self.source[key]
            for key, text in added.items():
                store.put(key, text)
        self.source |= added

    def erase(self, key: str) -> None:
        """Erase a sample, step by step as the how-to page says."""
        self.clean_up()  # ends a clean that was killed
        secret = self.source[key]
        self.edit([key], {})
        self.denied.append(key)
        source = {**self.lab.source, "exclude": self.denied}  # as of a deny-list
        self.lab = replace(self.lab, source=source, fields={**self.lab.fields, "omit": "omit.txt"})
        self.step(self.prepare("compact"), kill=0)
        self.clean_up()
        self.erased.add(secret)

    def clean_up(self, grace: float = 0) -> None:
        """Delete leases and tags except ``latest``, release that, and clean."""
        for name in self.named("tag "):
            self.step(self.tag(name, delete=True), kill=0)
        self.step(self.drop(self.named("lease ")), kill=0)
        self.step(self.tag("latest", self.latest, pin=False), kill=0)
        self.step(self.clean(Policy(1, 0, grace), mirror=True), kill=0)

    def repair(self) -> None:
        """Damage a shard that can be packed again, and repair it."""
        version = self.latest
        uses = json.loads(self.root.get(f"versions/{version}/version.json"))["segments"]
        whole = tuple(f"segments/{use['id']}/shards/" for use in uses if not use["omitted"])
        keys = [key for key in self.listing() if key.startswith(whole)]
        if keys and self.oracle.versions[version].samples == self.source:
            data = self.root.get(keys[0])
            self.root.put(keys[0], data[:600] + bytes([data[600] ^ 1]) + data[601:])
            settings = VerifySettings(self.lab.settings(), repair=True)
            self.step(Command("verify --repair", lambda: verify(settings, runner())), kill=0)
            assert self.root.get(keys[0]) == data

    def finish(self) -> None:
        """Prepare the source as it is, and delete all else: at once, or within three nights."""
        self.clean_up()
        self.step(self.prepare("prepare"), kill=0)
        grace = self.chance.choice([0, DAY])
        for _ in range(3 if grace else 1):
            self.pass_hours(25)
            self.clean_up(grace)
        latest, versions = self.latest, self.oracle.versions
        assert versions.keys() == {latest, max(versions, key=lambda each: versions[each].written)}
        assert verify(VerifySettings(self.lab.settings()), runner())["status"] == "intact"
        assert not [key for key in self.listing() if key.startswith(("work/replaced/", "leases/"))]
        self.read(latest, larder.open(self.url).copy_to(self.folder / "warm"))  # as `larder warm`

    def command(self) -> Command:
        choose, version = self.chance.choice, self.chance.choice(sorted(self.oracle.versions))
        leases, config = self.named("lease "), f"lease config-c-{version}"
        act = partial(leased, self.lab, version, choose("xy"), choose([1, 20]))
        other = [
            self.random_clean(),
            self.prepare(choose(["prepare", "prepare", "compact"])),
            self.tag(choose(["v1", "v2"]), version),
            self.tag("latest", version, pin=choose([True, False, False])),
            *(self.tag(name, delete=True) for name in self.named("tag ")),
            Command(f"lease {version}", act, ("lease user-",)),
            self.drop([name for name in leases if choose([True, False])]),
            Command(f"emit {version}", partial(emit, self.lab.settings(), version), (config,)),
            Command(f"train on {version}", partial(self.read, version), (config,)),
        ]
        return choose(other[:1] * 5 + other[1:2] * 3 + other[2:])

    def prepare(self, name: str) -> Command:
        return Command(name, getattr(self.lab, name), ("tag latest", "lease config-"))

    def clean(self, policy: Policy, *, mirror: bool) -> Command:
        older, grace = (f"{seconds // HOUR:.0f}h" for seconds in (policy.older, policy.grace))
        act = partial(cleaned, self.lab, policy.keep, grace, older=older, mirror=mirror)
        return Command(f"clean {policy} {mirror}", act, policy=policy)

    def tag(self, *names: str, **options: Any) -> Command:
        act = partial(tagged, self.lab, *names, **options)
        return Command(f"tag {names} {options}", act, (f"tag {names[0]}",))

    def drop(self, names: list[str]) -> Command:
        writes = tuple(f"lease {name}" for name in names)
        return Command(f"lease --drop {names}", partial(leased, self.lab, drop=names), writes)

    def read(self, version: str, url: str | Path = "") -> None:
        """Read a version as training does, which renews the lease of its config."""
        loader = larder.open(url or f"{self.url}@{version}").loader("train", batch_size=2)
        pairs = (pair for batch in loader for pair in zip(batch["key"], batch["txt"], strict=True))
        found = {f"{key}.txt": bytes(text) for key, text in pairs}
        assert found == self.oracle.versions[version].samples

    def listing(self) -> Listing:
        return {info.key: info for page in self.root.list() for info in page}

    def keepers(self) -> dict[str, Keeper]:
        found = {}
        for key in self.listing():
            if key.startswith("tags/"):
                version = json.loads(self.root.get(key))["version"]
                found[f"tag {key[5:-5]}"] = Keeper(frozenset({f"versions/{version}"}))
        for lease in leased(self.lab)["leases"]:
            kinds = ("versions", "segments")
            held = frozenset(f"{kind}/{name}" for kind in kinds for name in lease[kind])
            until = datetime.fromisoformat(lease["until"]).timestamp()
            found[f"lease {lease['name']}"] = Keeper(held, until)
        return found

    def step(self, *commands: Command, kill: float = 0.25) -> None:
        """Run commands, perhaps until they are killed, and compare what they have done."""
        oracle, alone = self.oracle, commands[0] if len(commands) == 1 else None
        before, keepers, now = self.listing(), self.keepers(), self.clock.time_ns() / 1e9
        oracle.keepers, oracle.units = keepers, times_of(before)
        for command in commands:
            if self.chance.random() < kill:
                command.stop.after = int(2 ** self.chance.uniform(0, 6)) - 1
            self.log.append(f"{command.name}, killed after {command.stop.after} writes")
        plan = alone.act(plan_only=True) if alone and alone.policy else None
        assert self.listing() == before, "a plan has written"
        forget_manifests()
        Turns(commands, random.Random(self.chance.random()), self.wrap)
        for command in commands:
            if command.error and not command.stop.stopped:
                self.log.append(f"{command.name}: {command.error}")
                allowed = REFUSED[:1] if alone and oracle.begun else () if alone else REFUSED
                if getattr(command.error, "code", "") not in allowed:
                    raise command.error
        after, left = self.listing(), self.keepers()
        ended = alone if alone and not alone.error else None
        if ended and ended.policy:
            compare_report(ended.document, plan, oracle.kept(ended.policy, now), before, after)
        writable = tuple(name for command in commands for name in command.writes)
        oracle.keepers = {name: was for name, was in keepers.items() if left.get(name) == was}
        for name in (keepers | left).keys() - oracle.keepers:
            is_over = name not in left and keepers[name].until <= now
            assert is_over or name.startswith(("lease run-", *writable)), f"{name} has changed"
        for version in published(after) - oracle.versions.keys():
            assert "tag latest" in writable, f"{version} was published"
            oracle.versions[version] = self.learned(version, after)
        lost = {units_of(key)[-1] for key in before.keys() - after if PUBLISHED.match(key)}
        gone = oracle.units.keys() - times_of(after)
        cleans = [command.policy for command in commands if command.policy]
        for unit in oracle.units:
            fates = {oracle.fate(unit, policy, now) for policy in cleans} or {"stays"}
            assert fates != {"stays"} or unit not in lost | gone, f"{unit} was deleted"
            assert fates != {"goes"} or unit in gone or not ended, f"{unit} was not deleted"
        for policy in cleans:
            oracle.cleaned(policy, now, ended=bool(ended))
        oracle.observe(times_of(after), published(after))
        oracle.keepers = left
        if ended and ended.name in ("prepare", "compact"):
            assert oracle.versions[ended.document["version"]].samples == self.source
        self.compare_contents(before, after)

    def learned(self, version: str, listing: Listing) -> Version:
        """A new version, which must have the samples of the source."""
        key = f"versions/{version}/version.json"
        uses = json.loads(self.root.get(key))["segments"]
        names = [f"segments/{use['id']}/caches/{use['cache']}" for use in uses]
        units = frozenset(unit for name in names for unit in units_of(name))
        return Version({**self.source}, listing[key].modified_us / 1e6, units)

    def compare_contents(self, before: Listing, after: Listing) -> None:
        """Every version is whole and can be read, and nothing that was erased is left."""
        versions = self.oracle.versions
        mirrored = {f"mirror/{key}" for each in versions.values() for key in each.samples}
        assert mirrored & before.keys() <= after.keys(), "a mirrored object was deleted"
        if any(before.get(key) != after.get(key) for key in before | after):
            contents = {name: objects_of(each) for name, each in self.lab.check().items()}
            assert contents == {name: versions[name].samples for name in versions}
            self.read(self.chance.choice(sorted(versions)))
        stored = b"".join(self.root.get(key) for key in after)
        assert not any(secret in stored for secret in self.erased)


def published(listing: Listing) -> set[str]:
    return {key.split("/")[1] for key in listing if key.endswith("/version.json")}


def times_of(listing: Listing) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, info in listing.items():
        for unit in units_of(key) if key != FOREIGN else ():
            found[unit] = max(found.get(unit, 0.0), info.modified_us / 1e6)
    return found


def compare_report(
    told: Any, plan: Any, kept: dict[str, set[str]], before: Listing, after: Listing
) -> None:
    """A clean says what it has kept and deleted, and its plan has said so before."""
    assert told["kept"].keys() == kept.keys()
    reasons = {version: reason.split(";")[0] for version, reason in told["kept"].items()}
    assert all(reason in kept[version] for version, reason in reasons.items())
    gone = [before[key] for key in before.keys() - after if not key.startswith("tombstones/")]
    assert told["deleted"]["count"] == len(gone)
    assert told["deleted"]["bytes"] == sum(info.size_bytes for info in gone)
    assert (told["status"] == "current") == (before == after)
    assert told["foreign"]["keys"] == [FOREIGN]
    for name in ("kept", "due", "ripe", "copies", "foreign"):
        assert plan[name] == told[name], name


NIGHTLY = [range(first, first + 20) for first in range(20, HISTORIES, 20)]


@pytest.mark.timeout(3600)  # twenty histories, also on a busy machine
@pytest.mark.parametrize("seeds", [range(1, 3), *at_push([0, *range(3, 20)]), *at_night(*NIGHTLY)])
def test_what_is_kept_stays_and_what_goes_is_gone(tmp_path, seeds):
    for seed in seeds:
        history = History(seed, tmp_path / str(seed))
        try:
            history.play(STEPS)
        finally:
            print(f"history {seed}", *history.log, sep="\n")
            memory.forget(f"history-{seed}")
            memory.forget(f"history-{seed}-source")
