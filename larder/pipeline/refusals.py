"""What a plan is refused for: what it knows to fail is not begun."""

from __future__ import annotations

from larder.errors import ConfigError, Failure
from larder.pipeline.plan import Plan
from larder.pipeline.results import BadKeysError, BatchReport
from larder.samples.contents import Found
from larder.units import format_bytes, format_count

__all__ = ["ClashError", "EmptyImagesError", "StorageKeysError", "check_plan"]


class StorageKeysError(BadKeysError):
    """Keys at the source that the storage cannot have, so that they could not be mirrored."""

    def __init__(self, report: BatchReport) -> None:
        first = report.failures[0]
        count = format_count(report.failed, "key")
        message = f"{count} that the storage cannot have: {first.message}"
        hint = "rename or exclude them, shorten local.url, or set mirror: false"
        ConfigError.__init__(self, "config.bad_key", message, where=first.key, hint=hint)
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        return (StorageKeysError, (self.report,))


class ClashError(BadKeysError):
    """Samples with two images that would be one field of a decoded cache."""

    def __init__(self, report: BatchReport) -> None:
        first = report.failures[0]
        count = format_count(report.failed, "sample")
        message = f"{count} that a cache of decoded records cannot hold: {first.message}"
        hint = "exclude or rename one of them, or set cache.records: encoded"
        ConfigError.__init__(self, "cache.schema", message, where=first.key, hint=hint)
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        return (ClashError, (self.report,))


class EmptyImagesError(BadKeysError):
    """Images of no bytes, which no check lets pass."""

    def __init__(self, report: BatchReport) -> None:
        first = report.failures[0]
        count = format_count(report.failed, "image")
        message = f"{count} of no bytes"
        hint = "restore or exclude them, or set on_bad_sample: skip"
        ConfigError.__init__(self, "sample.empty", message, where=first.key, hint=hint)
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        return (EmptyImagesError, (self.report,))


def check_plan(plan: Plan) -> None:
    """Refuse a plan that must not be carried out.

    Raises:
        BadKeysError: ``config.bad_key``: keys that no sample, or not the storage, can have;
            ``cache.schema``: samples that the cache cannot hold; ``sample.empty``: images of no
            bytes. With all of them.
        ConfigError: ``config.empty_source`` or ``config.cost_limit``.
    """
    arrangement, dataset = plan.arrangement, plan.survey.dataset
    if arrangement.bad_key_count and dataset.on_bad_key == "fail":
        report = BatchReport(failures=arrangement.bad_keys, failed=arrangement.bad_key_count)
        raise BadKeysError(report)
    if plan.unfit.count:
        raise StorageKeysError(BatchReport(failures=plan.unfit.failures, failed=plan.unfit.count))
    if dataset.cache and dataset.cache.records == "decoded":
        _check_clashes(arrangement.contents.clashing)
    if dataset.validation != "none" and dataset.on_bad_sample == "fail":
        _check_empty(arrangement.contents.empty_images)
    if not arrangement.samples:
        objects = format_count(plan.survey.inventory.objects, "object")
        message = f"no sample: {objects}, all of them folder markers, label files or bad keys"
        hint = "check source.url, source.include and source.exclude"
        raise ConfigError("config.empty_source", message, where=dataset.source.url, hint=hint)
    limit = plan.survey.cluster.copy_.max_cost_usd
    if limit is not None and plan.cost.total_usd > limit:
        message = (
            f"an estimated {plan.cost.total_usd:,.2f} USD for "
            f"{format_bytes(_read_bytes(plan))}; {limit:,.2f} USD is the limit"
        )
        hint = "raise max_cost_usd, or take less with source.include"
        raise ConfigError("config.cost_limit", message, where="cluster.copy", hint=hint)


def _check_clashes(clashing: Found) -> None:
    if clashing.samples:
        failures = tuple(
            Failure(key, "cache.schema", f"its parts {' and '.join(exts)} would be one image")
            for key, exts in clashing.examples
        )
        raise ClashError(BatchReport(failures=failures, failed=clashing.samples))


def _check_empty(empty: Found) -> None:
    if empty.samples:
        failures = tuple(
            Failure(key, "sample.empty", "an image of no bytes") for key, _ in empty.examples
        )
        raise EmptyImagesError(BatchReport(failures=failures, failed=empty.samples))


def _read_bytes(plan: Plan) -> int:
    return plan.copies.bytes if plan.copies else plan.survey.inventory.bytes
