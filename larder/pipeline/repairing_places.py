"""Where the parts of damaged shards may still be: the shards themselves, the mirror, the source.

Then shards of other segments, which a sample was packed from or into, and a cache of encoded
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from larder.config.images import ImageOptions
from larder.errors import DamageError, NotFoundError
from larder.limits import decoding_budget
from larder.manifest.schemas import SAMPLES
from larder.pipeline.job import ManifestRef, listed, scratch, source_of, storage_of, with_derived
from larder.pipeline.manifests import fetched, read_ref
from larder.pipeline.pack import planned_shards
from larder.pipeline.repairing_files import work_manifest
from larder.pipeline.salvage import InShard, OfOriginals, OfStore, Place, Wanted
from larder.pipeline.salvage_cache import InCache
from larder.pipeline.verifying_job import ShardToVerify, VerifyBatch, VerifyJob
from larder.shards.images import ImageRules
from larder.shards.model import ShardPlan
from larder.store.base import Readable, Store
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.publish import read_segment, read_version
from larder.versions.tags import TAG, read_tag

__all__ = ["Objects", "Places"]


@dataclass
class Objects:
    """The objects of a shard's samples, by key.

    Attributes:
        wanted: The part that was made of each.
        offsets: Where that is in the shard.
        fields: Its record and field in a cache of encoded records.
        exts: The extension of its part.
    """

    wanted: dict[str, Wanted] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    fields: dict[str, tuple[int, str]] = field(default_factory=dict)
    exts: dict[str, str] = field(default_factory=dict)


@dataclass
class Places:
    """Where the parts of a segment's shards may be.

    Attributes:
        job: The verification.
        root: The dataset's root.
        batch: Shards of the segment.
    """

    job: VerifyJob
    root: Store
    batch: VerifyBatch

    def of(
        self, shard: ShardToVerify, found: Objects, images: ImageOptions, stack: ExitStack
    ) -> tuple[Place, ...]:
        """The places for one shard, the nearest first; what they open is closed by the stack.

        Args:
            shard: The shard.
            found: The objects of its samples.
            images: How the segment stores images.
            stack: Closes what was opened.
        """
        own = layout.shard_key(self.batch.segment, shard.split, shard.name)
        elsewhere = _Elsewhere(self.root, lambda: self.others, found.wanted)

        def here(key: str, _: Wanted) -> tuple[str, int] | None:
            return (own, found.offsets[key]) if key in found.offsets else None

        return (
            InShard("the shard itself", self.root, here),
            self._objects("the mirror", self.mirror, found, images),
            self._objects("the source", self.source, found, images),
            InShard("shards of other segments", self.root, elsewhere.find),
            *self._caches(shard, found, stack),
        )

    def _objects(self, name: str, store: Readable, found: Objects, images: ImageOptions) -> Place:
        """Objects under their own keys, images as the segment stores them."""
        if images.transform is None:
            return OfStore(name, store)
        budget = decoding_budget(max(1, self.job.cluster.copy_.memory // 2))
        rules = ImageRules(images.max_pixels, budget=budget, transform=images.transform)
        return OfOriginals(name, store, found.exts, rules)

    def _caches(self, shard: ShardToVerify, found: Objects, stack: ExitStack) -> Iterator[InCache]:
        """The cache of the shard's split, if its records are encoded."""
        version = self.version
        if version is None or version.cache is None or version.cache.kind != "encoded":
            return
        for file in version.cache.splits.get(shard.split, ()):
            if file.segment == self.batch.segment:
                folder = stack.enter_context(scratch())
                yield stack.enter_context(InCache(self.root, file, found.fields, folder))

    @cached_property
    def mirror(self) -> Readable:
        """The mirror, whether there is one or not."""
        dataset, cluster = self.job.dataset, self.job.cluster
        store = storage_of(dataset, cluster, layout.mirror_prefix())
        return with_derived(store, dataset, cluster)

    @cached_property
    def source(self) -> Readable:
        """The source."""
        return source_of(self.job.dataset, self.job.cluster)

    def plan(self, shard: ShardToVerify) -> ShardPlan:
        """The plan of a shard: where its samples were among all, bad ones included.

        Args:
            shard: The shard.
        """
        index, first_row = self._planned.get((shard.split, shard.name), (0, shard.first_row))
        return ShardPlan(shard.split, index, shard.name, first_row, shard.rows, shard.shard_bytes)

    @cached_property
    def _planned(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Number and first row of each shard, from the plan in the work of the segment."""
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for info in listed(self.root, f"{layout.work_prefix(self.batch.segment)}shards-"):
            try:
                with fetched(self.root, work_manifest(self.root, info.key)) as path:
                    for plan in planned_shards(path):
                        found[plan.split, plan.name] = plan.index, plan.first_row
            except (DamageError, NotFoundError):
                continue
        return found

    @cached_property
    def version(self) -> VersionDocument | None:
        """The version that is repaired; None if its document is damaged."""
        try:
            return read_version(self.root, self.job.version)
        except DamageError:
            return None

    @cached_property
    def others(self) -> tuple[str, ...]:
        """The segments of all versions that the tag has named, except this one."""
        versions: list[VersionDocument] = []
        try:
            tag = read_tag(self.root, TAG)
        except DamageError:
            tag = None
        for name in tag.versions() if tag else ():
            try:
                found = read_version(self.root, name)
            except DamageError:
                continue
            versions += [found] if found else []
        ids = dict.fromkeys(use.id for version in versions for use in version.segments)
        return tuple(segment for segment in ids if segment != self.batch.segment)


class _Elsewhere:
    """Finds parts in shards of other segments: looked up once, when the first one is asked for."""

    def __init__(
        self, root: Store, others: Callable[[], Sequence[str]], wanted: Mapping[str, Wanted]
    ) -> None:
        self._root = root
        self._others = others
        self._wanted = wanted
        self._found: Mapping[str, tuple[str, int]] | None = None

    def find(self, key: str, wanted: Wanted) -> tuple[str, int] | None:
        """The shard and the offset of the part of an object."""
        del wanted
        if self._found is None:
            self._found = self._load()
        return self._found.get(key)

    def _load(self) -> dict[str, tuple[str, int]]:
        found: dict[str, tuple[str, int]] = {}
        for segment in self._others():
            try:
                document = read_segment(self._root, segment)
                if document is not None:
                    self._of_segment(ManifestRef.of(document.file("samples")), segment, found)
            except (DamageError, NotFoundError):
                continue
        return found

    def _of_segment(
        self, samples: ManifestRef, segment: str, found: dict[str, tuple[str, int]]
    ) -> None:
        keys = pa.array(list(self._wanted), pa.string())
        for batch in read_ref(self._root, samples, SAMPLES, columns=["split", "shard", "parts"]):
            parts = batch.column("parts").flatten()
            rows = pc.list_parent_indices(batch.column("parts"))
            hits = pc.indices_nonzero(pc.is_in(parts.field("source"), value_set=keys)).to_pylist()
            for place in hits:
                part, row = parts[place].as_py(), rows[place].as_py()
                wanted = self._wanted[part["source"]]
                same = (part["length"], part["crc32c"]) == (wanted.length, wanted.crc32c)
                if same and part["offset"] is not None:
                    split, shard = batch.column("split")[row], batch.column("shard")[row]
                    path = layout.shard_key(segment, split.as_py(), shard.as_py())
                    found.setdefault(part["source"], (path, part["offset"]))
