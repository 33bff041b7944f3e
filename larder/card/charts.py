"""The charts of a card, as PNG. No text of theirs comes from the dataset but names of splits."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from larder.card.facts import BINS_PER_DOUBLING, CardFacts
from larder.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Array = np.ndarray[Any, Any]


def size_chart(facts: CardFacts) -> bytes:
    """How many samples have which size, the splits upon each other."""
    figure, axes = _axes("size of a sample", "samples")
    histograms = {name: split.histogram for name, split in facts.splits.items()}
    sizes: _Array = np.sum(list(histograms.values()), axis=0)
    filled = np.flatnonzero(sizes)
    first = max(0, int(filled[0]) - BINS_PER_DOUBLING)  # with some room on both sides
    last = min(len(sizes) - 1, int(filled[-1]) + BINS_PER_DOUBLING)
    edges = 2.0 ** (np.arange(first, last + 2) / BINS_PER_DOUBLING)
    _stacked(axes, edges, {name: each[first : last + 1] for name, each in histograms.items()})
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda size, _: format_bytes(round(size)))
    axes.xaxis.set_minor_formatter("")
    return _png(figure)


def class_chart(facts: CardFacts) -> bytes:
    """How many samples each class has, from the largest to the smallest."""
    figure, axes = _axes("classes, by their number of samples", "samples")
    counts = {name: split.class_samples[:-1] for name, split in facts.splits.items()}
    total: _Array = np.sum(list(counts.values()), axis=0)
    order = np.argsort(-total, kind="stable")
    edges = np.arange(len(total) + 1, dtype=float)
    _stacked(axes, edges, {name: each[order] for name, each in counts.items()})
    return _png(figure)


def _axes(horizontal: str, vertical: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # not pyplot, which keeps figures for all threads

    figure = Figure(figsize=(7.2, 2.6), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(horizontal)
    axes.set_ylabel(vertical)
    axes.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}" if count % 1 == 0 else "")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _stacked(axes: Axes, edges: _Array, counts: Mapping[str, _Array]) -> None:
    base = np.zeros(len(edges) - 1)
    for split, each in counts.items():
        axes.stairs(base + each, edges, baseline=base, fill=True, label=split)
        base = base + each
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, None)
    if len(counts) > 1:
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _png(figure: Figure) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format="png", metadata={"Software": None})
    return target.getvalue()
