"""Applies the dataset file to each sample: its split, its position in the order, its label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import Dataset, HashSplits
from larder.errors import ConfigError
from larder.samples.columns import column_texts
from larder.samples.grouping import Grouped
from larder.samples.keys import seeded_hashes
from larder.samples.labels import Labeller
from larder.samples.naming import LABEL_EXT
from larder.samples.parts import PARTS, Joins
from larder.samples.splits import NO_SPLIT, GlobRule, HashRule

_Splits = npt.NDArray[np.int16]
_Orders = npt.NDArray[np.uint64]


class Planner:
    """Adds to each sample what the dataset file says about it.

    ``label_files`` has the bytes of ``labels.files`` by split; the classes known keep their
    numbers, in order, and new ones follow.

    Attributes:
        glob_rule: For splits by globs on objects; None if the sample key decides.
        annotations: Keys of the annotation files.
        joins: For samples whose parts several patterns find; None for WebDataset's rule.
        labeller: None for a dataset without labels.
        stratify: The rule of splits by class, which only all samples together give.
    """

    def __init__(
        self,
        dataset: Dataset,
        label_files: Mapping[str, bytes],
        known_classes: Sequence[str] = (),
    ) -> None:
        splits, labels = dataset.splits, dataset.labels
        self.split_names = dataset.split_names
        join = dataset.samples.join
        self.joins = Joins(join) if join else None
        annotations = dataset.samples.annotations
        self.annotations = annotations.files if annotations else ()
        self.glob_rule = None if isinstance(splits, HashSplits) else GlobRule(splits)
        archives = dataset.source.archives == "expand"
        self.labeller = (
            Labeller(labels, self.split_names, label_files, known_classes, archives=archives)
            if labels
            else None
        )
        self.stratify = splits if isinstance(splits, HashSplits) and splits.stratify else None
        self._hash_rule = (
            HashRule(splits) if isinstance(splits, HashSplits) and not splits.stratify else None
        )
        self._seed = dataset.shards.shuffle_seed

    def places(
        self, sample_keys: pa.Array, object_keys: pa.Array, divided: pa.Array
    ) -> tuple[_Splits, _Orders]:
        """Where samples would be in the order now: their splits, and their order within these.

        The samples may not exist any more; each comes with an object of its own and, if classes are
        divided, the name of its split. A split is an index or `NO_SPLIT`, an order is a hash or 0.
        """
        texts = column_texts(sample_keys) if self._hash_rule or self._seed is not None else []
        if self._hash_rule:
            splits = self._hash_rule.of_known(texts)
        elif self.stratify:
            splits = self.numbers(divided)
        else:
            assert self.glob_rule is not None, "splits are hashed or matched"
            splits = self.glob_rule.of_objects(object_keys)
        return splits, self._orders(texts, len(sample_keys))

    def numbers(self, splits: pa.Array) -> _Splits:
        """The index of each split, by name, or `NO_SPLIT`."""
        found = pc.index_in(splits, pa.array(self.split_names))
        numbers: _Splits = pc.fill_null(found, NO_SPLIT).to_numpy(zero_copy_only=False)
        return numbers.astype(np.int16)

    def orders(self, sample_keys: pa.Array) -> _Orders:
        """The hash by which samples are ordered within their split, or 0."""
        texts = column_texts(sample_keys) if self._seed is not None else []
        return self._orders(texts, len(sample_keys))

    def _orders(self, texts: Sequence[str], count: int) -> _Orders:
        if self._seed is None:
            return np.zeros(count, np.uint64)
        return seeded_hashes(self._seed, b"larder shuffle", texts)

    def plan(self, grouped: Grouped) -> pa.RecordBatch:
        """The rows of samples, with what the dataset file says of each sample.

        Raises:
            ConfigError: ``config.label``: a sample without a label, or with a part ``cls`` of its
                own. ``config.unmatched_split``: a sample key without the group to hash.
        """
        keys, splits = grouped.first("sample"), grouped.first("split").to_numpy()
        texts = column_texts(keys) if self._hash_rule or self._seed is not None else []
        if self._hash_rule:
            splits = self._hash_rule.of_samples(texts)
        elif self.stratify:  # until all are known; labels are the same for all splits
            splits = np.zeros(len(keys), np.int16)
        order = self._orders(texts, len(keys))
        columns = {"split": pa.array(splits), "order": pa.array(order)}
        if self.labeller:
            parts = grouped.parts()
            _check_no_label_part(keys, parts)
            texts_of = _texts(grouped) if self.labeller.from_column else None
            codes = self.labeller.codes(splits, keys, parts, texts_of)
            columns["label"] = pa.array(codes, pa.int32())
        owners = pa.array(np.repeat(np.arange(len(keys)), grouped.lengths))
        rows = grouped.rows
        for name, values in columns.items():
            rows = rows.set_column(
                PARTS.get_field_index(name), PARTS.field(name), values.take(owners)
            )
        return rows


def _texts(grouped: Grouped) -> pa.Array:
    """The class that a table gives each sample; null if none does."""
    texts = grouped.rows.column("text")
    rows = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
    owners = np.repeat(np.arange(len(grouped.lengths)), grouped.lengths)[rows]
    samples, firsts = np.unique(owners, return_index=True)
    places = np.zeros(len(grouped.lengths), np.int64)
    places[samples] = rows[firsts]
    given = np.zeros(len(places), np.bool_)
    given[samples] = True
    return texts.take(pa.array(places, mask=~given))


def _check_no_label_part(keys: pa.Array, parts: pa.Array) -> None:
    found = pc.index(parts.flatten().field("ext"), LABEL_EXT).as_py()
    if found >= 0:
        sample = int(pc.list_parent_indices(parts)[found].as_py())
        raise ConfigError(
            "config.label",
            f"the sample already has a part {LABEL_EXT}, which its label would become",
            where=keys[sample].as_py(),
            hint="remove labels from the dataset, or exclude these parts with source.exclude",
        )
