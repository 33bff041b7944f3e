"""Samples that lack a part of ``samples.join``: refused, left out or kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from larder.config.models import Missing
from larder.errors import Failure
from larder.samples.grouped import Grouped

__all__ = ["Complete"]

_MOST_SHOWN = 1_000


class Complete:
    """Divides samples into those with a part of each pattern, and the others.

    Args:
        names: What each pattern is called; none if samples are not joined.
        missing: What to do about the others; only ``keep`` lets them pass.

    Attributes:
        count: Number of samples that do not pass.
        shown: The first 1,000 of them.
    """

    def __init__(self, names: Sequence[str], missing: Missing) -> None:
        self.count = 0
        self.shown: list[Failure] = []
        self._names = names if missing != "keep" else ()

    def divide(self, grouped: Grouped) -> tuple[Grouped, pa.RecordBatch]:
        """The samples that pass, and the rows of the others."""
        if len(self._names) < 2:
            return grouped, grouped.rows.slice(0, 0)
        found = _found(grouped)
        whole = found == 2 ** len(self._names) - 1
        if whole.all():
            return grouped, grouped.rows.slice(0, 0)
        self._note(grouped, found, ~whole)
        kept = np.repeat(whole, grouped.lengths)
        lengths = grouped.lengths[whole]
        starts = np.cumsum(lengths) - lengths
        rest = grouped.rows.filter(pa.array(~kept))
        return Grouped(grouped.rows.filter(pa.array(kept)), starts), rest

    def _note(
        self, grouped: Grouped, found: npt.NDArray[np.int64], without: npt.NDArray[np.bool_]
    ) -> None:
        rows = np.flatnonzero(without)
        self.count += len(rows)
        chosen = rows[: _MOST_SHOWN - len(self.shown)]
        keys = grouped.first("sample").take(pa.array(chosen)).to_pylist()
        for key, bits in zip(keys, found[chosen].tolist(), strict=True):
            lacking = [name for at, name in enumerate(self._names) if not bits >> at & 1]
            message = f"the sample has no {' and no '.join(lacking)}"
            self.shown.append(Failure(key=key, code="config.missing_part", message=message))


def _found(grouped: Grouped) -> npt.NDArray[np.int64]:
    """The patterns of the parts of each sample, one bit for each; shape (samples,)."""
    bits = np.left_shift(1, grouped.rows.column("pattern").to_numpy().astype(np.int64))
    starts = np.cumsum(grouped.lengths) - grouped.lengths
    found: npt.NDArray[np.int64] = (
        np.bitwise_or.reduceat(bits, starts) if len(starts) else np.zeros(0, np.int64)
    )
    return found
