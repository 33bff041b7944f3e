"""The start of a run: stores the plan's manifests where every task finds them."""

from __future__ import annotations

from larder.manifest.files import ManifestFile
from larder.pipeline.job import Job, ManifestRef, open_location, put_named, put_work, root_url
from larder.pipeline.plan import Plan
from larder.store.base import Store
from larder.versions import layout
from larder.versions.conditions import probe_conditions

__all__ = ["begin"]


def begin(plan: Plan) -> Job:
    """Put the manifests of a plan into the storage: the inventory where it will be published.

    Raises:
        StoreError: The storage refuses writes.
    """
    found = plan.source_state
    root = open_location(found.cluster.storage, root_url(found.dataset, found.cluster))

    def put(role: str, file: ManifestFile) -> ManifestRef:
        if plan.published:  # nothing is built
            return ManifestRef(file.path.name, file.sha256, file.bytes, file.rows)
        return put_work(root, plan.segment, role, file)

    return Job(
        dataset=found.dataset,
        cluster=found.cluster,
        inputs=found.inputs,
        segment=plan.segment,
        version=plan.version,
        classes=plan.sample_order.classes,
        expected=found.expected,
        conditions=found.conditions or probe_conditions(root),
        complete=plan.complete,
        published=plan.published,
        skipped_keys=plan.sample_order.bad_key_count,
        inventory=_put_inventory(root, plan),
        sample_order=put("order", plan.sample_order.file),
        shard_plan=put("shards", plan.shard_plan),
    )


def _put_inventory(root: Store, plan: Plan) -> ManifestRef:
    file = plan.source_state.inventory.file
    key = layout.manifest_key(plan.version, "objects", file.sha256)
    if plan.published:  # from another inventory, which is kept
        return ManifestRef(key, file.sha256, file.bytes, file.rows)
    return put_named(root, key, file)
