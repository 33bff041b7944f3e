"""Refuses plans that would fail, before anything is done."""

from __future__ import annotations

from pathlib import Path

from larder.config.models import Dataset
from larder.copy.prices import check_cost
from larder.disk import check_room, folder_bytes
from larder.errors import ConfigError, Failure
from larder.jobs.results import BatchReport, RefusedError
from larder.pipeline.configs import check_configs
from larder.pipeline.image_rules import strongest_check
from larder.pipeline.job import source_of, storage_of
from larder.pipeline.mirror import mirror_route
from larder.pipeline.plan import Plan, make_plan
from larder.pipeline.source import SourceState
from larder.progress import Progress
from larder.samples.decoders import IMAGE
from larder.samples.images import is_image
from larder.samples.statistics import Found
from larder.source.archived import is_restored
from larder.store import local_path
from larder.units import format_count
from larder.versions import layout


def checked_plan(found: SourceState, folder: Path, *, progress: Progress) -> Plan:
    """Plan a run, and refuse a plan that must not be executed."""
    plan = make_plan(found, folder, progress)
    check_plan(plan)
    check_configs(plan)
    return plan


def check_plan(plan: Plan) -> None:
    """Refuse a plan that must not be executed.

    A RefusedError lists all of its objects or samples: ``config.bad_key``: keys that no sample can
    have, or that the storage cannot hold; ``config.missing_part``: samples that lack a part;
    ``cache.schema``: samples that the cache cannot hold; ``sample.empty``: images of zero bytes.

    Further refusals: ``config.empty_source``, ``config.cost_limit``; ``store.full``: it would write
    more into a directory than fits.
    """
    sample_order, dataset = plan.sample_order, plan.source_state.dataset
    if sample_order.bad_key_count and dataset.on_bad_key == "fail":
        joined = dataset.samples.join is not None
        raise _bad_keys(sample_order.bad_keys, sample_order.bad_key_count, joined=joined)
    if sample_order.incomplete_count and dataset.samples.missing == "refuse":
        raise _incomplete(sample_order.incomplete, sample_order.incomplete_count)
    if plan.unfit.count:
        raise _unfit_keys(plan.unfit.failures, plan.unfit.count)
    if dataset.cache and dataset.cache.records == "decoded" and not _decodes_images(dataset):
        _check_clashes(sample_order.statistics.clashing)
    if strongest_check(dataset) != "none" and dataset.on_bad_sample == "fail":
        _check_empty(sample_order.statistics.empty_images)
    if not sample_order.samples:
        objects = format_count(plan.source_state.inventory.objects, "object")
        kinds = "folder markers, label files or bad keys"
        hint = "check source.url, source.include and source.exclude"
        if sample_order.incomplete_count:
            kinds = "parts of incomplete samples, folder markers, label files or bad keys"
            hint += ", samples.join and samples.annotations"
        message = f"no samples: {objects}, all of them {kinds}"
        raise ConfigError("config.empty_source", message, where=dataset.source.url, hint=hint)
    state, copies = plan.source_state, plan.copies
    check_cost(plan.cost, state.cluster.copy_.max_cost_usd, "cluster.copy")
    _check_room(plan)
    if copies:
        mirror_route(state.dataset, state.cluster, copies).check()


def _decodes_images(dataset: Dataset) -> bool:
    """Whether parts are images by other rules than `larder.samples.images.role` knows."""
    uses = dataset.image_options.decoders
    return any(is_image(use.ext) or use.use == IMAGE for use in uses)


def _check_room(plan: Plan) -> None:
    """Refuse what does not fit, by the sizes that are known.

    Not known are caches, and shards whose bytes are estimates. What an interrupted run has written,
    with and without a receipt, is not written again, or in its own place.
    """
    state, new = plan.source_state, plan.new
    root = storage_of(state.dataset, state.cluster)
    if not root.features.local_path or plan.published:
        return
    folder = local_path(root, "x").parent
    copies = plan.copies.bytes if plan.copies else 0
    shards = new.shards.bytes if new and not new.complete and plan.exact else 0

    def written_bytes() -> int:
        unrecorded = folder_bytes(folder / layout.mirror_prefix())
        unrecorded -= state.inventory.bytes - copies
        packed = folder_bytes(folder / layout.shards_prefix(new.id)) if new and shards else 0
        return min(copies, max(0, unrecorded)) + min(shards, packed)

    check_room(folder, copies + shards, written_bytes)


def check_archived(plan: Plan) -> None:
    """Refuse to run a plan that would have to read archived objects, unless they are restored.

    ``object.unreadable`` lists the objects.
    """
    archived, state = plan.archived, plan.source_state
    if not archived.count:
        return
    source = source_of(state.dataset, state.cluster)
    if is_restored(source, [failure.key for failure in archived.failures]):
        return
    count = format_count(archived.count, "object")
    message = (
        f"{count} cannot be read: {archived.failures[0].key} is {archived.failures[0].message}"
    )
    hint = "restore them, or exclude them with source.exclude"
    raise _refused("object.unreadable", message, hint, archived.failures, archived.count)


def _bad_keys(failures: tuple[Failure, ...], count: int, *, joined: bool) -> RefusedError:
    why = "cannot be parts of samples" if joined else "WebDataset readers skip or merge"
    message = f"{format_count(count, 'key')} that {why}"
    hint = "rename or exclude them, or set on_bad_key: skip"
    return _refused("config.bad_key", f"{message}: {failures[0].message}", hint, failures, count)


def _incomplete(failures: tuple[Failure, ...], count: int) -> RefusedError:
    message = f"{format_count(count, 'incomplete sample')}: {failures[0].message}"
    hint = "add what is missing, or set samples.missing: skip or keep"
    return _refused("config.missing_part", message, hint, failures, count)


def _unfit_keys(failures: tuple[Failure, ...], count: int) -> RefusedError:
    message = f"{format_count(count, 'key')} that the storage cannot hold: {failures[0].message}"
    hint = "rename or exclude them, shorten storage.url, or set mirror: false"
    return _refused("config.bad_key", message, hint, failures, count)


def _check_clashes(clashing: Found) -> None:
    if clashing.samples:
        failures = tuple(
            Failure(key, "cache.schema", f"its parts {' and '.join(exts)} would become one image")
            for key, exts in clashing.examples
        )
        count = format_count(clashing.samples, "sample")
        message = f"{count} that a cache of decoded records cannot hold: {failures[0].message}"
        hint = "exclude or rename one of them, or set cache.records: encoded"
        raise _refused("cache.schema", message, hint, failures, clashing.samples)


def _check_empty(empty: Found) -> None:
    if empty.samples:
        failures = tuple(
            Failure(key, "sample.empty", "an image of zero bytes") for key, _ in empty.examples
        )
        message = f"{format_count(empty.samples, 'image')} of zero bytes"
        hint = "restore or exclude them, or set on_bad_sample: skip"
        raise _refused("sample.empty", message, hint, failures, empty.samples)


def _refused(
    code: str, message: str, hint: str, failures: tuple[Failure, ...], count: int
) -> RefusedError:
    return RefusedError(code, message, hint, BatchReport(failures=failures, failed=count))
