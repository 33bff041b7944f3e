"""The composition: the steps of a run, in order, for every runner.

::

    inspect_source -> reuse
                   -> make_plan -> begin -> build -> emit_configs

If another run has moved the tag in the meantime, the run starts again from the listing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from larder.copy.copy_job import CopyJob
from larder.copy.copy_job import begin as begin_copy
from larder.copy.site import resolved
from larder.copy.uploads import UploadRecords
from larder.disk import scratch
from larder.errors import SupersededError, printable
from larder.jobs.manifests import put_named
from larder.jobs.step_runner import InlineRunner, Runner, Start, only_here
from larder.manifest.digest import sha256_hex
from larder.manifest.query import tables_in
from larder.manifest.sealed import StoredFile
from larder.pipeline.build import build
from larder.pipeline.configs import emit_configs, pending_configs, submit_command
from larder.pipeline.planning.checks import check_archived, checked_plan
from larder.pipeline.planning.growth_plan import GrowthPlan, weaker_segments
from larder.pipeline.planning.plan import Plan
from larder.pipeline.planning.plan_report import plan_document
from larder.pipeline.planning.source_state import inspect_source
from larder.pipeline.run_report import built_document, reused_document
from larder.pipeline.settings import Settings
from larder.progress import Progress, StageTimes, stages_since
from larder.segments.mirror import PLACE as MIRROR
from larder.segments.mirror import mirror_route
from larder.segments.segment_job import Job, open_root, put_work
from larder.segments.stores import storage_of
from larder.store.base import Store
from larder.store.own_files import published_file_errors
from larder.versions import layout
from larder.versions.leases import Claim
from larder.versions.publish import probe_conditions
from larder.versions.runs import RunRecord, now, write_run
from larder.versions.tags import TAG

RESTARTS = 3
"""Maximum restarts of a superseded run, so that runs that keep moving the tag end."""


class Planned(NamedTuple):
    """The JSON document of a plan, and the job that executes it.

    Without a job, the run has nothing to do, or only plans. ``record`` has the fields of the run's
    record that the plan knows.
    """

    document: dict[str, Any]
    job: Job | None = None
    record: RunRecord | None = None


def prepare(
    settings: Settings,
    runner: Runner | None = None,
    *,
    plan_only: bool = False,
    start: Start | None = None,
) -> dict[str, Any]:
    """Prepare a dataset: reuse the version that these inputs led to before, or build one.

    Without a ``runner``, this process does the work. With ``plan_only``, only private temporary
    files are written, and on this machine the contents of a source's archives and tables. ``start``
    chooses where the plan is executed. Returns the JSON document of the run, or of its plan.

    SupersededError: other runs have moved the tag during each of the attempts. After any other
    error, nothing is published in part.
    """
    if runner is None:
        only_here(settings.cluster.runner)
        runner = InlineRunner(settings.batches_at_once, StageTimes())
    with nullcontext() if plan_only else runner.claim(settings.dataset.name):
        planned = _planned(settings, runner, plan_only=plan_only)
        if planned.job is None:
            return planned.document
        execute = partial(_execute, settings, planned.job, planned)
        return start(execute) if start else execute(runner)


def _planned(
    settings: Settings, runner: Runner, compaction: str | None = None, *, plan_only: bool = False
) -> Planned:
    """Plan a run, and begin its job unless ``plan_only``.

    The plan is in a folder for temporary files, with the memory that the cluster file gives to
    tables. The job does not need the folder.
    """
    began, before = now(), runner.times.stages()
    with scratch() as folder, tables_in(folder, settings.cluster.memory.tables_bytes):
        state = runner.run(inspect_source, settings, folder, compaction, plan_only)
        if state.published is not None:
            if plan_only:
                configs = pending_configs(settings, state.published)
                return Planned(reused_document(state, state.published, configs, runner.times))
            configs = runner.run(emit_configs, settings, state.published)
            document = reused_document(state, state.published, configs, runner.times)
            return Planned(document | {"command": submit_command(settings, configs)})
        plan = runner.run(checked_plan, state, folder)
        if plan_only:
            return Planned(plan_document(plan))
        check_archived(plan)
        job = begin(plan)  # also tries the storage's conditions, if no run has
        document = plan_document(replace(plan, conditions=job.conditions))
        record = _record(settings, job, plan.growth, began)
        return Planned(document, job, _timed(record, before, runner))


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


def _timed(record: RunRecord, before: Mapping[str, Any], runner: Runner) -> RunRecord:
    """Add the time that stages took since ``before`` to the record."""
    stages = stages_since(before, runner.times.stages())
    times = {name: round(1000 * each["seconds"]) for name, each in stages.items()}
    return replace(record, milliseconds={**record.milliseconds, **times})


def _execute(settings: Settings, job: Job, planned: Planned, runner: Runner) -> dict[str, Any]:
    """Execute a planned job.

    If the run is superseded, it lists the source again, and executes the new plan. A compaction is
    not repeated: later changes are added to its own result. ``run.interrupted``: the steps were
    asked to stop; other errors as in `prepare`.
    """
    for restart in range(1, RESTARTS + 1):
        try:
            return _built(settings, job, planned, runner)
        except SupersededError as error:
            why = printable(error.message)
            runner.progress.restart(f"{why}; starting again ({restart} of {RESTARTS})")
        planned = _planned(settings, runner, compaction=job.version if settings.compact else None)
        if planned.job is None:
            return planned.document
        job = planned.job
    return _built(settings, job, planned, runner)


def _built(settings: Settings, job: Job, planned: Planned, runner: Runner) -> dict[str, Any]:
    before, root = runner.times.stages(), open_root(job)
    try:
        built = build(job, runner)
        record = planned.record
        if record and built.pinned:
            record = replace(record, tag=None, before=None, after=None)
        if record and (record.published or record.before != record.after):
            record = replace(_timed(record, before, runner), flow_run=runner.flow_run)
            runner.run(record_run, settings, record)
        # With a pinned tag, configs are left as they are.
        configs = () if built.pinned else runner.run(emit_configs, settings, built.version)
    finally:
        if job.claim:
            job.claim.give_back(root)
    return built_document(settings, planned.document, job.expected, built, configs, runner.times)


def record_run(
    settings: Settings, record: RunRecord, *, progress: Progress
) -> tuple[Settings, RunRecord]:
    """Write the record of a run beside its version; return the settings and the record."""
    del progress
    write_run(storage_of(settings.dataset, settings.cluster), record)
    return settings, record


def begin(plan: Plan) -> Job:
    """Put the manifests of a plan into the storage: the inventory where it will be published.

    Uploads of shards and copies that killed runs have left are aborted after a day.
    """
    state = plan.source_state
    root = storage_of(state.dataset, state.cluster)
    if claim := _claim(plan):
        claim.take(root)
    if plan.new and not plan.new.complete:
        UploadRecords(root, MIRROR.uploads).abort_orphans()
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
        inventory=_put_inventory(root, plan),
        claim=claim,
        due=_begin_mirror(plan),
        files=_put_files(root, plan),
        formats={segment.id: segment.document.shape.use for segment in segments},
        weaker=weaker_segments(plan.growth.previous, state.dataset),
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
    """Write the order and the shards of the new segment into its work folder."""
    if plan.new is None or plan.shard_plan is None or plan.published:
        return {}
    files = {"order": plan.growth.selected.file, "shards": plan.shard_plan}
    return {role: put_work(root, plan.new.id, role, file) for role, file in files.items()}


def _begin_mirror(plan: Plan) -> CopyJob | None:
    if not plan.due or not plan.copies or not plan.copies.count:
        return None
    state = plan.source_state
    route = mirror_route(state.dataset, state.cluster, plan.copies)
    return begin_copy(route, state.cluster.runner.batch_bytes, plan.due)


def _put_files(root: Store, plan: Plan) -> tuple[StoredFile, ...]:
    """Write the omitted rows, if they are many, and the version's own records of bad samples."""
    files = []
    omitted, skipped = plan.growth.omitted_file, plan.growth.selected.skipped
    if omitted is not None and not plan.published:
        sha256 = sha256_hex(omitted)
        key = layout.omitted_key(plan.version, sha256)
        with published_file_errors():
            root.put(key, omitted)
        files.append(StoredFile(key, len(omitted), sha256, "omitted"))
    if skipped is not None and not plan.published:
        key = layout.manifest_key(plan.version, "skipped", skipped.sha256)
        files.append(put_named(root, key, skipped, "skipped"))
    return tuple(files)


def _put_inventory(root: Store, plan: Plan) -> StoredFile:
    file = plan.source_state.inventory.file
    key = layout.manifest_key(plan.version, "objects", file.sha256)
    if plan.published:  # from another inventory, which is kept
        return StoredFile(key, file.bytes, file.sha256, "objects")
    return put_named(root, key, file, "objects")
