"""Applies the dataset file to each sample: its split, its position in the order, its label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import Dataset
from larder.errors import ConfigError
from larder.samples.columns import column_texts
from larder.samples.grouping import Grouped
from larder.samples.keys import seeded_hashes
from larder.samples.labels import Labeller
from larder.samples.naming import LABEL_EXT
from larder.samples.parts import PARTS, Joins
from larder.samples.splits import GlobRule, HashRule, SplitRule
from larder.samples.strata import StrataRule

SPLIT_RULES: Mapping[str, Callable[[Any], SplitRule]] = {
    "globs": GlobRule,
    "hash": HashRule,
    "strata": StrataRule,
}
"""The registry of split rules, by ``rule`` of the model that each is made from."""

_Orders = npt.NDArray[np.uint64]


class Planner:
    """Adds to each sample what the dataset file says about it.

    ``label_files`` has the bytes of ``labels.files`` by split; the classes known keep their
    numbers, in order, and new ones follow.
    """

    def __init__(
        self,
        dataset: Dataset,
        label_files: Mapping[str, bytes],
        known_classes: Sequence[str] = (),
    ) -> None:
        labels = dataset.labels
        self.split_names = dataset.split_names
        join = dataset.samples.join
        self.joins = Joins(join) if join else None
        annotations = dataset.samples.annotations
        self.annotations = annotations.files if annotations else ()
        self.split_rule = SPLIT_RULES[dataset.split_options.rule](dataset.split_options)
        archives = dataset.source.archives == "expand"
        self.labeller = (
            Labeller(labels, self.split_names, label_files, known_classes, archives=archives)
            if labels
            else None
        )
        self._seed = dataset.shards.shuffle_seed

    def orders(self, sample_keys: pa.Array) -> _Orders:
        """The hash by which samples are ordered within their split, or 0."""
        if self._seed is None:
            return np.zeros(len(sample_keys), np.uint64)
        return seeded_hashes(self._seed, b"larder shuffle", column_texts(sample_keys))

    def plan(self, grouped: Grouped) -> pa.RecordBatch:
        keys = grouped.first("sample")
        splits = self.split_rule.of_samples(keys, grouped.first("split").to_numpy())
        columns = {"split": pa.array(splits), "order": pa.array(self.orders(keys))}
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
    texts = grouped.rows.column("class_name")
    rows = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
    owners = np.repeat(np.arange(len(grouped.lengths)), grouped.lengths)[rows]
    samples, firsts = np.unique(owners, return_index=True)
    places = np.zeros(len(grouped.lengths), np.int64)
    places[samples] = rows[firsts]
    given = np.zeros(len(places), np.bool_)
    given[samples] = True
    return texts.take(pa.array(places, mask=~given))


def _check_no_label_part(keys: pa.Array, parts: pa.Array) -> None:
    place = pc.index(parts.flatten().field("ext"), LABEL_EXT).as_py()
    if place >= 0:
        sample = int(pc.list_parent_indices(parts)[place].as_py())
        raise ConfigError(
            "config.label",
            f"the sample already has a part {LABEL_EXT}, which its label would become",
            where=keys[sample].as_py(),
            hint="remove labels from the dataset, or exclude these parts with source.exclude",
        )
