"""The rules for images, from a run's dataset and cluster."""

from __future__ import annotations

from dataclasses import replace

from larder.budgets import decoding_budget, read_ahead_bytes
from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.config.shape import ImageOptions, Transform
from larder.machine import processes_together, usable_cores
from larder.samples.decoders import Decoders
from larder.shards.images.check import ImageRules, Validation
from larder.shards.images.transform import codec_versions
from larder.versions.identity import shaped_images

_READ_BYTES = 64 << 20
_DECODED_BYTES = 64 << 20


def image_rules(dataset: Dataset, cluster: Cluster) -> ImageRules:
    """Return the rules for the images of a dataset.

    Decoded images take half of ``copy.memory_bytes``, over all batches. Without
    ``copy.memory_bytes``, they take at most 64 MiB for each core.
    """
    limits = cluster.copy_
    decoded_bytes = max(1, limits.memory // 2 // processes_together())
    if limits.memory_bytes is None:
        decoded_bytes = min(decoded_bytes, _DECODED_BYTES * usable_cores())
    return ImageRules(
        validate=dataset.validate_,
        skip=dataset.on_bad_sample == "skip",
        max_pixels=dataset.images.max_pixels,
        forms=dataset.cache is not None and dataset.cache.records == "decoded",
        budget=decoding_budget(decoded_bytes),
        transform=dataset.image_options.transform,
        decoders=Decoders(dataset.image_options.uses),
    )


def strongest_check(dataset: Dataset) -> Validation:
    """Return how images are checked, given that a transform decodes them."""
    return "decode" if dataset.shards.images else dataset.validate_


def batch_read_bytes(
    dataset: Dataset, cluster: Cluster, concurrent_batches: int, *, local: bool
) -> int:
    """Return how many bytes a batch may read ahead: its share of the memory besides decoded images.

    Unless ``copy.memory_bytes`` is set, at most 64 MiB. More hardly helps, unless a sample in a
    bucket takes over an eighth of that: such a sample is read alone.
    """
    limits = cluster.copy_
    memory_bytes = limits.memory // (2 if strongest_check(dataset) == "decode" else 1)
    read_bytes = read_ahead_bytes(memory_bytes // concurrent_batches, local=local)
    return read_bytes if limits.memory_bytes is not None else min(read_bytes, _READ_BYTES)


def planned_transform(dataset: Dataset) -> Transform | None:
    """Return the transform of a new segment, with the libraries of this machine."""
    transform = dataset.image_options.transform
    return replace(transform, codecs=codec_versions()) if transform else None


def image_options(dataset: Dataset) -> ImageOptions:
    """Return which images a new segment may have, how they are stored, and its other decoders."""
    return replace(shaped_images(dataset), transform=planned_transform(dataset))
