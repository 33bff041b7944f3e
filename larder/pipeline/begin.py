"""The start of a run: stores the plan's manifests where every task finds them."""

from __future__ import annotations

from larder.manifest.digest import sha256_hex
from larder.pipeline.job import (
    Job,
    ManifestRef,
    NewSegment,
    put_named,
    put_work,
    storage_of,
)
from larder.pipeline.mirrored_source import resolved
from larder.pipeline.plan import Plan
from larder.pipeline.planned_segment import PlannedSegment
from larder.store.base import Store
from larder.versions import layout
from larder.versions.conditions import probe_conditions
from larder.versions.documents import FileFacts
from larder.versions.publish import own_file_errors


def begin(plan: Plan) -> Job:
    """Put the manifests of a plan into the storage: the inventory where it will be published."""
    found = plan.source_state
    root = storage_of(found.dataset, found.cluster)
    return Job(
        dataset=resolved(found.dataset, plan.mirror),
        cluster=found.cluster,
        inputs=found.inputs,
        version=plan.version,
        new=_put_segment(root, plan.new) if plan.new and not plan.published else None,
        kept=plan.kept,
        classes=plan.sample_order.classes,
        expected=found.expected,
        conditions=found.conditions or probe_conditions(root),
        published=plan.published,
        skipped=plan.sample_order.left_out_count + plan.growth.skipped,
        inventory=_put_inventory(root, plan),
        files=_put_files(root, plan),
        formats=plan.formats,
        weaker=plan.weaker,
    )


def _put_segment(root: Store, new: PlannedSegment) -> NewSegment:
    return NewSegment(
        id=new.id,
        shape=new.shape,
        first_shards=new.first_shards,
        complete=new.complete,
        sample_order=put_work(root, new.id, "order", new.sample_order),
        shard_plan=put_work(root, new.id, "shards", new.shard_plan),
    )


def _put_files(root: Store, plan: Plan) -> tuple[FileFacts, ...]:
    """The omitted rows, if they are many, and the records of bad samples of the version itself."""
    files = []
    omitted, skipped = plan.growth.omitted_file, plan.growth.selected.skipped
    if omitted is not None and not plan.published:
        sha256 = sha256_hex(omitted)
        key = layout.omitted_key(plan.version, sha256)
        with own_file_errors():
            root.put(layout.omitted_copy_key(plan.version, sha256), omitted)
            root.put(key, omitted)
        files.append(FileFacts(key, len(omitted), sha256, "omitted"))
    if skipped is not None and not plan.published:
        key = layout.manifest_key(plan.version, "skipped", skipped.sha256)
        files.append(put_named(root, key, skipped).facts("skipped"))
    return tuple(files)


def _put_inventory(root: Store, plan: Plan) -> ManifestRef:
    file = plan.source_state.inventory.file
    key = layout.manifest_key(plan.version, "objects", file.sha256)
    if plan.published:  # from another inventory, which is kept
        return ManifestRef(key, file.sha256, file.bytes, file.rows)
    return put_named(root, key, file)
