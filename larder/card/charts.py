"""The charts of a card, as PNG. No text of theirs comes from the dataset but names of splits."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from larder.card.card_facts import BINS_PER_DOUBLING, CardFacts
from larder.readers.numbers import Array
from larder.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BARS = 1000
"""Each takes a third of a millisecond to draw."""

_COLOURS = ["#3b6ea8", "#e0913a", "#5b9a68", "#b0568c", "#7b7f87", "#c9b13c"]


def charts_of(facts: CardFacts) -> dict[str, bytes]:
    charts = {}
    if any(split.histogram.any() for split in facts.splits.values()):
        charts["Sizes"] = _sizes(facts)
    if len(facts.version.classes) > 1:
        charts["Balance"] = _balance(facts)
    return charts


def _sizes(facts: CardFacts) -> bytes:
    histograms = {name: split.histogram for name, split in facts.splits.items()}
    filled = np.flatnonzero(np.sum(list(histograms.values()), axis=0))
    first = max(0, int(filled[0]) - BINS_PER_DOUBLING)  # with some room on both sides
    stop = int(filled[-1]) + BINS_PER_DOUBLING + 1
    edges = 2.0 ** (np.arange(first, stop + 1) / BINS_PER_DOUBLING)
    counts = {name: each[first:stop] for name, each in histograms.items()}
    figure, axes = _stacked("size of a sample", edges, counts)
    axes.set_xscale("log", base=4)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda size, _: format_bytes(round(size)))
    return _png(figure)


def _balance(facts: CardFacts) -> bytes:
    """Draw the number of samples of each class; a bar of several classes shows their mean."""
    counts = {name: split.class_samples[:-1] for name, split in facts.splits.items()}
    order = np.argsort(-np.sum(list(counts.values()), axis=0), kind="stable")
    edges = np.unique(np.linspace(0, len(order), min(len(order), _BARS) + 1).astype(np.int64))
    counts = {
        name: np.add.reduceat(each[order], edges[:-1]) / np.diff(edges)
        for name, each in counts.items()
    }
    figure, _ = _stacked("classes, from the largest to the smallest", edges, counts)
    return _png(figure)


def _stacked(label: str, edges: Array, counts: Mapping[str, Array]) -> tuple[Figure, Axes]:
    """Draw numbers of samples, with the splits on top of each other."""
    from matplotlib.figure import Figure  # not pyplot, which keeps figures for all threads

    figure = Figure(figsize=(5.2, 2.8), dpi=144, layout="constrained")
    axes = figure.add_subplot(xlabel=label, ylabel="samples")
    axes.set_prop_cycle(color=_COLOURS)
    base = np.zeros(len(edges) - 1)
    for split, each in counts.items():
        axes.stairs(base + each, edges, baseline=base, fill=True, label=split)
        base = base + each
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, None)
    axes.yaxis.set_major_formatter(lambda count, _: f"{count:,.0f}" if count % 1 == 0 else "")
    axes.grid(axis="y", color="#e4e6e8", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    if len(counts) > 1:
        figure.legend(frameon=False, loc="outside upper left", ncols=4)
    return figure, axes


def _png(figure: Figure) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format="png", metadata={"Software": None})
    return target.getvalue()
