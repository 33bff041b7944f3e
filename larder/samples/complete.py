"""Samples that lack a part of ``samples.join``: refused, left out or kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models import Missing
from larder.errors import Failure, Failures
from larder.samples.grouped import Grouped


class Complete:
    """Divides samples into those with a part of each pattern, and the others.

    Only ``missing: keep`` lets the others pass; what does not pass is counted in ``incomplete``.
    Annotations count as one more pattern, after the named ones; ``names`` is empty without joins.
    """

    def __init__(self, names: Sequence[str], annotated: bool, missing: Missing) -> None:
        own = [*(names or ["object"]), *(["annotation"] if annotated else [])]
        self.annotation = len(own) - 1
        self.incomplete = Failures()
        self._names = own
        self._annotated = annotated
        self._keep = missing == "keep"

    def divide(self, grouped: Grouped) -> tuple[Grouped, pa.RecordBatch]:
        """The samples that pass, and the objects of the others."""
        if len(self._names) == 1:
            return grouped, grouped.rows.slice(0, 0)
        found = _found(grouped)
        all_ = 2 ** len(self._names) - 1
        only_annotation = self._annotated & (found == 1 << self.annotation)
        passes = ~only_annotation if self._keep else found == all_
        if passes.all():
            return grouped, grouped.rows.slice(0, 0)
        self._note(grouped, found, ~passes)
        kept = np.repeat(passes, grouped.lengths)
        lengths = grouped.lengths[passes]
        starts = np.cumsum(lengths) - lengths
        rest = grouped.rows.filter(pa.array(~kept))
        if self._annotated:
            objects = pc.not_equal(rest.column("pattern"), pa.scalar(self.annotation, pa.int16()))
            rest = rest.filter(objects)
        return Grouped(grouped.rows.filter(pa.array(kept)), starts), rest

    def _note(
        self, grouped: Grouped, found: npt.NDArray[np.int64], without: npt.NDArray[np.bool_]
    ) -> None:
        rows = np.flatnonzero(without)
        chosen = rows[: self.incomplete.room]
        keys = grouped.first("sample").take(pa.array(chosen)).to_pylist()
        failures = map(self._failure, keys, found[chosen].tolist())
        self.incomplete.add_counted(failures, len(rows))

    def _failure(self, key: str, bits: int) -> Failure:
        lacking = [name for at, name in enumerate(self._names) if not bits >> at & 1]
        return Failure(key, "config.missing_part", f"the sample has no {' and no '.join(lacking)}")


def _found(grouped: Grouped) -> npt.NDArray[np.int64]:
    """The patterns of the parts of each sample, one bit for each; shape (samples,)."""
    bits = np.left_shift(1, grouped.rows.column("pattern").to_numpy().astype(np.int64))
    starts = np.cumsum(grouped.lengths) - grouped.lengths
    found: npt.NDArray[np.int64] = (
        np.bitwise_or.reduceat(bits, starts) if len(starts) else np.zeros(0, np.int64)
    )
    return found
