"""What a copy costs and how long it takes, estimated, and the refusal of what costs too much."""

from __future__ import annotations

from larder.disk import check_room
from larder.pipeline.copying_plan import CopyPlan
from larder.pipeline.copying_settings import CopySettings
from larder.pipeline.cost_limit import check_cost
from larder.pipeline.estimate import BUCKETS, DIRECTORIES
from larder.pipeline.priced import Work, price
from larder.pipeline.results import BatchReport, RefusedError, Totals
from larder.store import local_path
from larder.transfer.cost import Cost
from larder.transfer.inventory import LeftOut, Listed
from larder.units import format_count


def copy_cost(plan: CopyPlan) -> Cost:
    """What a copy costs."""
    settings = plan.located
    nothing = Listed(plan.objects.count, plan.objects.bytes, 0, LeftOut(), LeftOut(), None)
    work = Work(
        inventory=plan.listed or nothing,
        copied=plan.copies,
        read=Totals(),
        shards=Totals(),
        mirrored=plan.objects,
    )
    return price(settings.source, settings.storage, settings.limits, work).cost


def copy_seconds(settings: CopySettings, copies: Totals) -> float:
    """How long that takes; by ``copy.bytes_per_second``, if it is given."""
    local = all(place.provider == "file" for place in (settings.source, settings.storage))
    pace = DIRECTORIES if local else BUCKETS
    given = [settings.limits.bytes_per_second or pace.bytes]
    given += [settings.limits.max_bytes_per_second or given[0]]
    return copies.bytes / min(given) + copies.count / pace.copied_objects


def check_copy(plan: CopyPlan) -> None:
    """Refuse a plan that must not be executed.

    Raises:
        RefusedError: ``config.bad_key``: keys that the storage cannot hold. It lists them.
        ConfigError: ``config.cost_limit``, or the chosen engine cannot make the copy.
        StoreError: ``store.full``: it would write more into a directory than fits.
    """
    if plan.unfit.count:
        failures, count = plan.unfit.failures, plan.unfit.count
        message = f"{format_count(count, 'key')} that the storage cannot hold"
        hint = "rename or exclude them"
        report = BatchReport(failures=failures, failed=count)
        raise RefusedError("config.bad_key", f"{message}: {failures[0].message}", hint, report)
    limit = plan.settings.limits.max_cost_usd
    check_cost(copy_cost(plan), limit, plan.copies.bytes, "copy")
    plan.route.check()
    root = plan.known.root
    if root.features.local_path and not plan.replaced:  # what is replaced makes room
        check_room(local_path(root, "x").parent, plan.copies.bytes)
