"""The composition of a clean: list, announce units that may go, and delete announced units.

A clean takes two runs that are the grace time apart. The first run writes a tombstone; the second
deletes the units in the tombstone that nothing needs by then. docs/design/007-cleaning.md says why
this is safe with anything that happens at the same time.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

from larder.catalog.due import (
    HOUR_US,
    InUse,
    KeepPolicy,
    UnreadCopy,
    due_units,
    kept_versions,
    units_in_use,
    unread_copies,
    unread_rows,
)
from larder.catalog.history import check_dataset
from larder.catalog.holdings import (
    SHOWN_KEYS,
    Holdings,
    Needed,
    Unit,
    read_needed,
    take_holdings,
)
from larder.catalog.stored_dataset import StoredDataset
from larder.catalog.sweep import AT_ONCE, STAGE, Sweep, delete_objects
from larder.config.models.dataset import Dataset
from larder.copy.uploads import UploadRecords
from larder.disk import remove_abandoned
from larder.errors import printable
from larder.jobs.results import Totals
from larder.jobs.step_runner import Runner, Start
from larder.manifest.sealed import seal
from larder.progress import Progress, TimedProgress
from larder.segments.mirror import PLACE as MIRROR
from larder.store import local_path
from larder.store.base import Store
from larder.store.own_files import published_file_errors
from larder.units import format_bytes, format_count
from larder.versions import layout
from larder.versions.leases import (
    NamedTombstone,
    Tombstone,
    read_tombstones,
    running_seconds,
    store_now_us,
)
from larder.versions.publish import Conditions, probe_conditions

SHOWN_LINES = 10


@dataclass(frozen=True, slots=True)
class CleanSettings:
    """All settings of a clean; ``dataset`` is None without a dataset file.

    ``mirror``: also delete mirrored objects that nothing reads, if the source of ``dataset`` shows
    that they may go.
    """

    place: StoredDataset
    policy: KeepPolicy
    mirror: bool = False
    dataset: Dataset | None = None


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """Everything that a clean would do, at a time by the storage's clock.

    ``reasons`` say why versions stay; see `kept_versions`. ``due`` are units to announce. The clean
    executes the ``ripe`` tombstones, except units that are ``in_use``, and not the ``waiting``
    tombstones. ``copies`` are mirrored objects and rows that may go; ``lasting`` is the number of
    unread mirrored objects that may not.
    """

    settings: CleanSettings
    now_us: int
    holdings: Holdings
    reasons: Mapping[str, str]
    in_use: InUse
    due: Sequence[str]
    ripe: Sequence[NamedTombstone]
    waiting: Sequence[NamedTombstone]
    copies: Totals
    lasting: int

    @property
    def is_current(self) -> bool:
        """Whether nothing has to be done."""
        return not (self.due or self.ripe or self.copies.count)

    @property
    def freed(self) -> Totals:
        """Objects and bytes that the clean frees, with the announced units."""
        prefixes = [*self.due, *self.unused([*self.ripe, *self.waiting])]
        return self.totals(prefixes) + self.copies

    def unused(self, tombstones: Iterable[NamedTombstone]) -> list[str]:
        """Return the units of tombstones that this clean does not keep."""
        return [prefix for prefix in _prefixes(tombstones) if not self.in_use.has(prefix)]

    def totals(self, prefixes: Sequence[str]) -> Totals:
        units = [self.holdings.units.get(prefix, Unit()) for prefix in prefixes]
        return Totals(sum(unit.objects for unit in units), sum(unit.bytes for unit in units))


def plan_clean(
    settings: CleanSettings, plan_only: bool = False, *, progress: Progress
) -> CleanPlan:
    """List a dataset, and read which documents name which units.

    Writes and deletes one object, to learn the time by the storage's clock and whether both are
    allowed. ``plan_only`` writes nothing, and uses this machine's clock.

    ``version.missing``: the dataset does not exist. DamageError: the needed units are not known.
    """
    root = check_dataset(settings.place)
    progress.start(STAGE)
    holdings = take_holdings(root, settings.place.dataset)
    now_us = time.time_ns() // 1000 if plan_only else store_now_us(root)
    plan = plan_with(settings, holdings, read_needed(root, now_us), now_us)
    progress.finish(STAGE)
    return plan


def plan_with(
    settings: CleanSettings, holdings: Holdings, needed: Needed, now_us: int
) -> CleanPlan:
    root = settings.place.open()
    ripe, waiting = list[NamedTombstone](), list[NamedTombstone]()
    for each in read_tombstones(root):
        is_old = settings.policy.has_passed(now_us - each.info.modified_us)
        (ripe if is_old or each.tombstone.cleaner else waiting).append(each)
    reasons = kept_versions(holdings, needed, settings.policy, now_us)
    announced = set(_prefixes([*ripe, *waiting]))
    in_use = units_in_use(holdings, needed, reasons, settings.policy, now_us)
    due = [prefix for prefix in due_units(holdings, in_use) if prefix not in announced]
    kept = [version for version, reason in reasons.items() if reason]
    copies, lasting = Totals(), 0
    for info, may_go in _unread(settings, root, kept, needed, now_us):
        copies += Totals(1, info.size_bytes) if may_go else Totals()
        lasting += not may_go
    return CleanPlan(
        settings, now_us, holdings, reasons, in_use, due, ripe, waiting, copies, lasting
    )


def _unread(
    settings: CleanSettings, root: Store, versions: Iterable[str], needed: Needed, now_us: int
) -> Iterator[UnreadCopy]:
    """Yield copies that nothing reads; none during a run, which may read any of them.

    Copies younger than the grace time are left out: a killed run may have made them.
    """
    if needed.running:
        return
    versions, policy, place = list(versions), settings.policy, settings.place
    copies: Iterator[UnreadCopy] = iter(())
    if settings.mirror:
        copies = unread_copies(root, versions, settings.dataset, place.cluster)
    segments = InUse.of(needed, versions).segments | needed.segments
    rows = unread_rows(root, sorted(segments), indexes=not policy.grace_hours)
    for copy in chain(copies, (UnreadCopy(info, may_go=True) for info in rows)):
        if policy.has_passed(now_us - copy.info.modified_us):
            yield copy


def clean(
    settings: CleanSettings, runner: Runner, *, plan_only: bool = False, start: Start | None = None
) -> dict[str, Any]:
    """Announce units that nothing needs, and delete units that were announced long enough ago.

    With ``plan_only``, nothing is written; ``start`` chooses where the plan is executed. Returns
    the JSON document of the clean, or of its plan.
    """
    plan = runner.run(plan_clean, settings, plan_only)
    if not plan_only:
        runner.run(remove_leftovers, plan)
    if plan_only or plan.is_current:
        return _document(plan, "current" if plan.is_current else "planned", runner.times)
    execute = partial(_execute, plan)
    return start(execute) if start else execute(runner)


def remove_leftovers(plan: CleanPlan, *, progress: Progress) -> None:
    """Abort old uploads of killed runs, also if no unit is due.

    Without a grace time, also remove temporary files from a directory, however young they are.
    """
    del progress
    root = plan.settings.place.open()
    uploads = UploadRecords(root, MIRROR.uploads)
    running = running_seconds(root, plan.now_us)
    uploads.abort_unrecorded(lambda: running)
    if running is None:  # a run continues uploads, and writes temporary files
        uploads.abort_recorded(plan.now_us)
        if not plan.settings.policy.grace_us:
            _remove_temporary(root)


def _execute(plan: CleanPlan, runner: Runner) -> dict[str, Any]:
    deleted, announced = runner.run(clean_units, plan)
    is_cleaned = deleted.count or plan.ripe
    document = _document(plan, "cleaned" if is_cleaned else "announced", runner.times)
    return document | {"deleted": asdict(deleted), "announced": announced}


def clean_units(plan: CleanPlan, *, progress: Progress) -> tuple[Totals, dict[str, Any]]:
    """Write the tombstone of due units, then execute the tombstones that are old enough.

    Returns the totals of deleted objects, and the announced units.
    """
    place, policy = plan.settings.place, plan.settings.policy
    root = place.open()
    conditions = probe_conditions(root)
    ripe, waiting = [*plan.ripe], [*plan.waiting]
    if plan.due:
        (waiting if policy.grace_us else ripe).append(_announce(root, plan.due))
    totals = plan.totals(plan.unused(ripe)) + plan.copies
    progress.start(STAGE, objects=totals.count, bytes=totals.bytes)
    deleted = _sweep(plan, root, ripe, conditions, progress)
    if plan.copies.count:
        needed = read_needed(root, plan.now_us)
        copies = _unread(plan.settings, root, needed.named, needed, plan.now_us)
        unread = (copy.info for copy in copies if copy.may_go)
        while infos := list(islice(unread, AT_ONCE)):
            deleted += delete_objects(root, infos, place.cluster.copy_.concurrency, progress)
    progress.finish(STAGE)
    return deleted, _announced(plan, waiting)


def _sweep(
    plan: CleanPlan,
    root: Store,
    ripe: Sequence[NamedTombstone],
    conditions: Conditions,
    progress: Progress,
) -> Totals:
    """Execute tombstones together: one may name a segment, and another its last version."""
    if not ripe:
        return Totals()
    place, young = plan.settings.place, plan.in_use.young
    threads = place.cluster.copy_.concurrency
    sweeps = [
        Sweep(root, place.dataset, each, plan.reasons, young, threads, progress) for each in ripe
    ]
    for sweep in sweeps:
        sweep.begin(conditions)
    needed = read_needed(root, plan.now_us)
    gone = {version for sweep in sweeps for version in sweep.delete_versions(needed)}
    for sweep in sweeps:
        sweep.delete_units(needed, gone)
    return sum((sweep.done for sweep in sweeps), Totals())


def _remove_temporary(root: Store) -> None:
    if root.features.local_path:
        for folder, _, _ in os.walk(local_path(root, "work").parent):
            remove_abandoned(os.fsencode(folder), math.inf)


def _announce(root: Store, due: Sequence[str]) -> NamedTombstone:
    tombstone, key = Tombstone(tuple(due)), layout.tombstone_key(secrets.token_hex(8))
    with published_file_errors():
        root.put(key, seal(tombstone))
    return NamedTombstone(key, tombstone, root.head(key))


def _prefixes(tombstones: Iterable[NamedTombstone]) -> list[str]:
    return [prefix for each in tombstones for prefix in each.tombstone.prefixes]


def _announced(plan: CleanPlan, waiting: Sequence[NamedTombstone]) -> dict[str, Any]:
    last_us = max((each.info.modified_us for each in waiting), default=plan.now_us)
    left_us = last_us + plan.settings.policy.grace_us - plan.now_us
    return {**_listing(plan, plan.unused(waiting)), "hours": round(left_us / HOUR_US)}


def _listing(plan: CleanPlan, prefixes: Sequence[str]) -> dict[str, Any]:
    totals = plan.totals(prefixes)
    return {**asdict(totals), "units": list(prefixes)[:SHOWN_KEYS], "total_units": len(prefixes)}


def _document(plan: CleanPlan, status: str, times: TimedProgress) -> dict[str, Any]:
    return {
        "dataset": plan.settings.place.dataset,
        "storage": plan.settings.place.open().url,
        "status": status,
        "kept": {version: reason for version, reason in plan.reasons.items() if reason},
        "due": _listing(plan, plan.due),
        "ripe": _listing(plan, plan.unused(plan.ripe)),
        "announced": _announced(plan, plan.waiting),
        "copies": asdict(plan.copies) | {"lasting": plan.lasting},
        "deleted": asdict(Totals()),
        "foreign": {"count": plan.holdings.foreign_count, "keys": plan.holdings.foreign},
        "seconds": round(times.seconds(), 3),
        "stages": times.stages(),
    }


def clean_lines(document: Mapping[str, Any]) -> list[str]:
    kept, due, announced = document["kept"], document["due"], document["announced"]
    lines = [f"{document['dataset']} {document['status']}: {document['storage']}"]
    lines.append(f"  keep     {format_count(len(kept), 'version')}")
    lines += _some((f"{version} ({reason})" for version, reason in kept.items()), len(kept))
    if document["status"] == "planned":
        lines += _units("delete", document["ripe"]) + _units("announce", due)
        if document["copies"]["count"]:
            lines.append(f"  copies   {_amount(document['copies'])}")
    elif document["deleted"]["count"]:
        lines.append(f"  deleted  {_amount(document['deleted'])}")
    if lasting := document["copies"]["lasting"]:
        lines.append(f"  mirror   {format_count(lasting, 'object')} no longer read, which stay:")
        lines.append("           not in the source any more, or no dataset file says where that is")
    lines += _units("waits", announced)
    if announced["units"] and document["status"] != "planned":
        hours = format_count(announced["hours"], "hour")
        lines.append(f"           a clean in {hours} or later deletes what nothing needs by then")
    if foreign := document["foreign"]["count"]:
        lines.append(f"  foreign  {format_count(foreign, 'object')}, which stay")
        lines += _some(map(printable, document["foreign"]["keys"]), foreign)
    return lines


def _units(verb: str, amount: Mapping[str, Any]) -> list[str]:
    if not amount["units"]:
        return []
    return [f"  {verb:<9}{_amount(amount)}", *_some(amount["units"], amount["total_units"])]


def _some(items: Iterable[str], count: int) -> list[str]:
    more = [f"           and {count - SHOWN_LINES:,} more"] if count > SHOWN_LINES else []
    return [f"           {each}" for each in islice(items, SHOWN_LINES)] + more


def _amount(amount: Mapping[str, Any]) -> str:
    return f"{format_count(amount['count'], 'object')}, {format_bytes(amount['bytes'])}"
