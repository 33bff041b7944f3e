"""The composition: the steps of a run, in order, for every runner.

::

    inspect_source -> reuse
                   -> make_plan -> begin -> build -> emit_configs

If another run has moved the tag in the meantime, the run starts again from the listing. `refresh`
does this for many datasets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from larder.copy.copy_job import CopyJob
from larder.copy.copy_job import begin as begin_copy
from larder.copy.site import resolved
from larder.copy.uploads import UploadRecords
from larder.disk import scratch
from larder.errors import Failure, LarderError, SupersededError, printable
from larder.jobs.manifests import put_named
from larder.jobs.results import BatchReport, RunError
from larder.jobs.step_runner import Execute, InlineRunner, Runner, Start, only_here
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
from larder.pipeline.run_report import built_document, reused_document, run_lines, status_line
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

_INTERRUPTED = "run.interrupted"


@dataclass(frozen=True, slots=True)
class Planned:
    """The JSON document of a plan, the job that executes it, and the known fields of its record."""

    document: dict[str, Any]
    job: Job
    record: RunRecord


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
        if not isinstance(planned, Planned):
            return planned
        execute = partial(_execute, settings, planned)
        return start(execute) if start else execute(runner)


def _planned(
    settings: Settings, runner: Runner, compaction: str | None = None, *, plan_only: bool = False
) -> Planned | dict[str, Any]:
    """Plan a run, and begin its job.

    Returns only a JSON document if there is nothing to do, or with ``plan_only``. The plan is in a
    folder for temporary files, with the memory that the cluster file gives to tables. The job does
    not need the folder.
    """
    began, stages_before = now(), runner.times.stages()
    with scratch() as folder, tables_in(folder, settings.cluster.memory.tables_bytes):
        state = runner.run(inspect_source, settings, folder, compaction, plan_only)
        if state.published is not None:
            if plan_only:
                configs = pending_configs(settings, state.published)
                return reused_document(state, state.published, configs, runner.times)
            configs = runner.run(emit_configs, settings, state.published)
            document = reused_document(state, state.published, configs, runner.times)
            return document | {"command": submit_command(settings, configs)}
        plan = runner.run(checked_plan, state, folder)
        if plan_only:
            return plan_document(plan)
        check_archived(plan)
        job = begin(plan)  # also tries the storage's conditions, if no run has
        document = plan_document(replace(plan, conditions=job.conditions))
        record = _record(settings, job, plan.growth, began)
        return Planned(document, job, _timed(record, stages_before, runner))


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
        changes=asdict(growth.changes),
        names={kind: keys for kind, keys in growth.names.items() if kind not in unnamed},
    )


def _timed(record: RunRecord, stages_before: Mapping[str, Any], runner: Runner) -> RunRecord:
    """Add the time that stages took since ``stages_before`` to the record."""
    stages = stages_since(stages_before, runner.times.stages())
    times = {name: round(1000 * each["seconds"]) for name, each in stages.items()}
    return replace(record, milliseconds={**record.milliseconds, **times})


def _execute(settings: Settings, planned: Planned, runner: Runner) -> dict[str, Any]:
    """Execute a planned job.

    If the run is superseded, it lists the source again, and executes the new plan. A compaction is
    not repeated: later changes are added to its own result. ``run.interrupted``: the steps were
    asked to stop; other errors as in `prepare`.
    """
    for restart in range(1, RESTARTS + 1):
        try:
            return _built(settings, planned, runner)
        except SupersededError as error:
            why = printable(error.message)
            runner.progress.restart(f"{why}; starting again ({restart} of {RESTARTS})")
        compaction = planned.job.version if settings.compact else None
        again = _planned(settings, runner, compaction)
        if not isinstance(again, Planned):
            return again
        planned = again
    return _built(settings, planned, runner)


def _built(settings: Settings, planned: Planned, runner: Runner) -> dict[str, Any]:
    job, record, stages_before = planned.job, planned.record, runner.times.stages()
    root = open_root(job)
    try:
        built = build(job, runner)
        if built.pinned:
            record = replace(record, tag=None, before=None, after=None)
        if record.published or record.before != record.after:
            record = replace(_timed(record, stages_before, runner), flow_run=runner.flow_run)
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
        UploadRecords(root, MIRROR.uploads).abort_unrecorded()
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


def refresh(
    datasets: Mapping[str, Callable[[], Settings]],
    runner: Runner,
    *,
    start: Start | None = None,
    run: Callable[[Settings, Runner], dict[str, Any]] = prepare,
) -> dict[str, Any]:
    """Prepare datasets one after the other; an unchanged source is only listed.

    Args:
        datasets: By name, a function that loads the dataset's settings; an error stops no other
            dataset.
        runner: The runner of all datasets.
        start: Chooses where all of them run.
        run: Prepares one dataset.

    Returns:
        ``{"datasets": [DOCUMENT, ...]}`` with the documents of the runs.

    Raises:
        RunError: Names the datasets that failed. The others were prepared: ``document`` is what
            would be returned for these.
    """

    def execute(runner: Runner) -> dict[str, Any]:
        documents: list[dict[str, Any]] = []
        failures: list[Failure] = []
        for number, (name, load) in enumerate(datasets.items(), 1):
            runner.progress.restart(f"dataset {number} of {len(datasets)}: {name}")
            before, began_seconds = runner.times.stages(), runner.times.seconds()
            try:
                document = run(load(), runner)
                documents.append(_of_one(document, before, began_seconds))
            except LarderError as error:
                if error.code == _INTERRUPTED:
                    raise
                failures.append(Failure.of(name, error))
        if failures:
            hint = "fix these, then run again; the others are current"
            report = BatchReport(failed=len(failures), failures=tuple(failures))
            failed = RunError("refresh", report, hint)
            failed.document = {"datasets": documents}
            raise failed
        return {"datasets": documents}

    chosen: Execute = execute
    return start(chosen) if start else chosen(runner)


def _of_one(
    document: dict[str, Any], before: Mapping[str, Mapping[str, Any]], began_seconds: float
) -> dict[str, Any]:
    """Make the document of a dataset, without the time and stages of earlier datasets."""
    stages = stages_since(before, document["stages"])
    seconds = round(document["seconds"] - began_seconds, 3)
    return {**document, "seconds": seconds, "stages": stages}


def refresh_lines(document: Mapping[str, Any]) -> list[str]:
    """List a line for each unchanged dataset, and all lines of a run for the others."""
    runs: Sequence[Mapping[str, Any]] = document["datasets"]
    return [
        line
        for run in runs
        for line in ([status_line(run)] if run["status"] == "reused" else run_lines(run))
    ]
