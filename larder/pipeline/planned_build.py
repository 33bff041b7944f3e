"""A planned build: from a plan to the published version and its configs.

::

    begin_build -> build -> record_run -> emit_configs
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

from larder.copy.copy_job import CopyJob
from larder.copy.copy_job import begin as begin_copy
from larder.copy.site import resolved
from larder.copy.uploads import UploadRecords
from larder.jobs.manifests import put_named
from larder.jobs.step_runner import Runner
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import StoredFile
from larder.pipeline.build import build
from larder.pipeline.configs import emit_configs
from larder.pipeline.planning.checks import check_archived
from larder.pipeline.planning.growth_plan import GrowthPlan
from larder.pipeline.planning.plan import Plan
from larder.pipeline.planning.plan_report import plan_document
from larder.pipeline.run_report import built_document
from larder.pipeline.settings import Settings
from larder.progress import Progress, stages_since
from larder.segments.mirror import PLACE as MIRROR
from larder.segments.mirror import mirror_route
from larder.segments.segment_job import Job, put_work
from larder.segments.stores import storage_of
from larder.store.base import Store
from larder.store.own_files import published_file_errors
from larder.versions import layout
from larder.versions.identity import weaker_check
from larder.versions.leases import Claim, claimed, running_seconds
from larder.versions.publish import probe_conditions
from larder.versions.runs import RunRecord, write_run
from larder.versions.tags import TAG


class PlannedBuild(NamedTuple):
    """A job in the storage, the JSON document of its plan, and the known fields of its record.

    ``leases`` has the run's lease until the build ends, or the caller closes it.
    """

    document: dict[str, Any]
    job: Job
    record: RunRecord
    leases: ExitStack

    def execute(self, settings: Settings, runner: Runner) -> dict[str, Any]:
        job, record = self.job, self.record
        stages_before = runner.times.stages()
        with self.leases:
            built = build(job, runner)
            if built.pinned:
                record = replace(record, tag=None, before=None, after=None)
            if record.published or record.before != record.after:
                record = replace(_timed(record, stages_before, runner), flow_run=runner.flow_run)
                runner.run(record_run, settings, record)
            # With a pinned tag, configs are left as they are.
            configs = () if built.pinned else runner.run(emit_configs, settings, built.version)
        return built_document(settings, self.document, job.expected, built, configs, runner.times)


def begin_build(
    settings: Settings,
    plan: Plan,
    runner: Runner,
    leases: ExitStack,
    began: str,
    stages_before: Mapping[str, Any],
) -> PlannedBuild:
    """Begin the job of a plan; stages had taken ``stages_before`` when the run began."""
    check_archived(plan)
    job = _begin(plan, leases)  # also tries the storage's conditions, if no run has
    document = plan_document(plan._replace(conditions=job.conditions))
    record = _record(settings, job, plan.growth, began)
    return PlannedBuild(document, job, _timed(record, stages_before, runner), leases)


def _record(settings: Settings, job: Job, growth: GrowthPlan, began: str) -> RunRecord:
    # A deny-list takes samples out of everything that is stored, so their keys are not stored anew.
    unnamed = () if settings.dataset.omit is None else ("removed",)
    return RunRecord(
        dataset=job.dataset.name,
        version=job.version,
        command="compact" if settings.compact else "prepare",
        began=began,
        published=not job.published,
        tag=TAG,
        before=job.expected,
        after=job.version,
        previous=growth.previous.version.id if growth.previous else None,
        changes=growth.changes._asdict(),
        names={kind: keys for kind, keys in growth.names.items() if kind not in unnamed},
    )


def _timed(record: RunRecord, stages_before: Mapping[str, Any], runner: Runner) -> RunRecord:
    stages = stages_since(stages_before, runner.times.stages())
    times = {name: round(1000 * each["seconds"]) for name, each in stages.items()}
    return replace(record, milliseconds={**record.milliseconds, **times})


def record_run(
    settings: Settings, record: RunRecord, *, progress: Progress
) -> tuple[Settings, RunRecord]:
    del progress
    write_run(storage_of(settings.dataset, settings.cluster), record)
    return settings, record


def _begin(plan: Plan, leases: ExitStack) -> Job:
    """Put the manifests of a plan into the storage, the inventory where it will be published."""
    state = plan.source_state
    root = storage_of(state.dataset, state.cluster)
    if claim := _claim(plan):
        leases.enter_context(claimed(root, claim))
    if claim and plan.new and not plan.new.complete:
        own = layout.lease_key(claim.name)
        UploadRecords(root, MIRROR.uploads).abort_unrecorded(
            lambda: running_seconds(root, root.head(own).clock_us)
        )
    segments = plan.growth.previous.segments if plan.growth.previous else ()
    return Job(
        dataset=resolved(state.dataset, plan.mirror),
        cluster=state.cluster,
        inputs=state.inputs,
        version=plan.version,
        new=None if plan.published else plan.new,
        manifests=_put_manifests(root, plan),
        kept=plan.growth.kept,
        uses=plan.growth.uses,
        classes=plan.sample_order.classes,
        expected=state.expected,
        conditions=plan.conditions or probe_conditions(root),
        published=plan.published,
        skipped=plan.sample_order.left_out_count + plan.growth.skipped,
        claim=claim,
        due=_begin_mirror(plan),
        files=() if plan.published else _put_files(root, plan),
        formats={segment.id: segment.document.shape.use for segment in segments},
        weaker=tuple(each.id for each in segments if weaker_check(state.dataset, each.document)),
    )


def _claim(plan: Plan) -> Claim | None:
    """Claim the version, its new segment, and all segments of the previous version.

    The run may pack samples of all previous segments again. Documents that are complete already,
    and that the version needs, must still exist. None if the tag names the version already.
    """
    if plan.published and plan.source_state.expected == plan.version:
        return None
    previous = plan.growth.previous.segments if plan.growth.previous else ()
    segments = [*(segment.id for segment in previous), *([plan.new.id] if plan.new else [])]
    complete = [segment.id for segment in plan.growth.kept]
    complete += [plan.new.id] if plan.new and plan.new.complete else []
    documents = [*map(layout.segment_key, complete)]
    documents += [layout.version_key(plan.version)] if plan.published else []
    return Claim.of_run([plan.version], segments, documents)


def _put_manifests(root: Store, plan: Plan) -> dict[str, StoredFile]:
    if plan.new is None or plan.shard_plan is None or plan.published:
        return {}
    files = {"order": plan.growth.selected.file, "shards": plan.shard_plan}
    return {role: put_work(root, plan.new.id, role, file) for role, file in files.items()}


def _begin_mirror(plan: Plan) -> CopyJob | None:
    if not plan.due or not plan.copies or not plan.copies.count:
        return None
    state = plan.source_state
    route = mirror_route(state.dataset, state.cluster, plan.copies)
    return begin_copy(route, state.cluster.runner, plan.due)


def _put_files(root: Store, plan: Plan) -> tuple[StoredFile, ...]:
    """Write the version's own files: omitted rows, if they are many, bad samples, the inventory."""
    files = []
    omitted, skipped = plan.growth.omitted_file, plan.growth.selected.skipped
    if omitted is not None:
        sha256 = sha256_hex(omitted)
        key = layout.omitted_key(plan.version, sha256)
        with published_file_errors():
            root.put(key, omitted)
        files.append(StoredFile(key, len(omitted), sha256, "omitted"))
    manifests = {"skipped": skipped, "objects": plan.source_state.inventory.file}
    for role, file in manifests.items():
        if file is not None:
            key = layout.manifest_key(plan.version, role, file.sha256)
            files.append(put_named(root, key, file, role))
    return tuple(files)
