"""What the dataset file says of each sample: its split, its place in the order, its label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import Dataset, HashSplits
from larder.errors import ConfigError
from larder.samples.columns import column_texts
from larder.samples.grouped import GROUPED
from larder.samples.labels import Labeller
from larder.samples.seeded import seeded_hashes
from larder.samples.splits import GlobRule, HashRule

__all__ = ["ORDER", "PLANNED", "Planner"]

_LABEL_EXT = "cls"
"""The part that a label becomes when it is written."""

PLANNED = pa.schema(
    [
        GROUPED.field("split"),
        pa.field("order", pa.uint64(), nullable=False),
        GROUPED.field("key"),
        pa.field("label", pa.int32()),
        GROUPED.field("parts"),
    ]
)
"""One row per sample. ``split`` is a place in the dataset's splits, ``label`` a code of
`larder.samples.classes.ClassTable`, and ``order`` a hash where samples are shuffled, else 0."""

ORDER = ("split", "order", "key")
"""The columns of `PLANNED` by which samples are ordered."""


class Planner:
    """Adds to each sample what the dataset file says of it.

    Args:
        dataset: As configured.
        label_files: By split, the bytes of the files that ``labels.files`` names.

    Attributes:
        split_names: The splits in order.
        glob_rule: For splits by globs on objects; None where the sample key decides.
        labeller: None for a dataset without labels.

    Raises:
        ConfigError: ``config.label``: a label file that cannot be understood, a class pinned
            twice. ``config.invalid_value``: a glob that cannot be understood.
    """

    def __init__(self, dataset: Dataset, label_files: Mapping[str, bytes]) -> None:
        splits, labels = dataset.splits, dataset.labels
        self.split_names = dataset.split_names
        self.glob_rule = None if isinstance(splits, HashSplits) else GlobRule(splits)
        self.labeller = Labeller(labels, self.split_names, label_files) if labels else None
        self._hash_rule = HashRule(splits) if isinstance(splits, HashSplits) else None
        self._seed = dataset.shards.shuffle_seed

    def plan(self, grouped: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of `PLANNED`, for rows of `larder.samples.grouped.GROUPED`.

        Raises:
            ConfigError: ``config.label``: a sample without a label, or with a part ``cls``
                besides. ``config.unmatched_split``: a sample key without the group to hash.
        """
        for batch in grouped:
            keys, parts = batch.column("key"), batch.column("parts")
            texts = column_texts(keys) if self._hash_rule or self._seed is not None else []
            splits = batch.column("split")
            if self._hash_rule:
                splits = pa.array(self._hash_rule.of_samples(texts), pa.int16())
            order = self._order(texts, len(batch))
            labels = self._labels(splits, keys, parts)
            yield pa.RecordBatch.from_arrays([splits, order, keys, labels, parts], schema=PLANNED)

    def _order(self, texts: list[str], rows: int) -> pa.Array:
        if self._seed is None:
            return pa.array(np.zeros(rows, np.uint64))
        return pa.array(seeded_hashes(self._seed, b"larder shuffle", texts))

    def _labels(self, splits: pa.Array, keys: pa.Array, parts: pa.Array) -> pa.Array:
        if self.labeller is None:
            return pa.nulls(len(keys), pa.int32())
        _check_no_label_part(keys, parts)
        return pa.array(self.labeller.codes(splits.to_numpy(), keys, parts))


def _check_no_label_part(keys: pa.Array, parts: pa.Array) -> None:
    found = pc.index(parts.flatten().field("ext"), _LABEL_EXT).as_py()
    if found >= 0:
        sample = int(pc.list_parent_indices(parts)[found].as_py())
        raise ConfigError(
            "config.label",
            f"the sample has a part {_LABEL_EXT} of its own, where its label goes",
            where=keys[sample].as_py(),
            hint="drop labels from the dataset, or leave these parts out with source.exclude",
        )
