"""Draws the card of a version, and puts it into the storage: after a run, or on its own."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from larder.card.card_facts import BINS_PER_DOUBLING, CardFacts, read_facts, samples_by_split
from larder.card.card_page import card_note, card_page
from larder.card.pictures import pictures
from larder.config.config_document import UNREAD
from larder.disk import scratch
from larder.errors import LarderError, printable
from larder.packages import require
from larder.pipeline.configs import location
from larder.pipeline.settings import Settings
from larder.progress import NullProgress, Progress
from larder.readers.numbers import Array
from larder.segments.stores import storage_of
from larder.store import object_url
from larder.store.interrupt import INTERRUPTED
from larder.store.own_files import published_file_errors
from larder.units import format_bytes
from larder.versions import layout
from larder.versions.runs import RunRecord
from larder.versions.tags import published_version

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_BARS = 1000
"""Each takes a third of a millisecond to draw."""
_COLOURS = ["#3b6ea8", "#e0913a", "#5b9a68", "#b0568c", "#7b7f87", "#c9b13c"]


class Drawn(NamedTuple):
    """The URL of a card, or a warning that says why the card is missing.

    ``note`` has its figures and charts in Markdown.
    """

    version: str
    url: str = ""
    note: str = ""
    warning: str = ""


def card(settings: Settings, name: str) -> dict[str, Any]:
    """Draw the card of a version, named by its ID or a tag; returns a JSON document.

    Raises:
        ConfigError: ``config.missing_package``: matplotlib is not installed;
            ``version.missing``: no such version or tag.
        DamageError: A document or the index of the version is damaged.
    """
    drawn = _draw(settings, name, NullProgress())
    return {"dataset": settings.dataset.name, "version": drawn.version, "card": drawn.url}


def draw_card(settings: Settings, version: str, *, progress: Progress) -> Drawn:
    """Draw the card of a version that was just published; a failure becomes a warning."""
    progress.start("card")
    try:
        return _draw(settings, version, progress)
    except LarderError as error:
        if error.code == INTERRUPTED:
            raise
        reason = f"{error}"
    except Exception as error:  # noqa: BLE001 # the version is published, whatever matplotlib or Pillow raise
        reason = f"{type(error).__name__}: {error}"
    finally:
        progress.finish("card")
    hint = f"make it with: larder card {settings.dataset.name}@{version}"
    return Drawn(version, warning=printable(f"the data card was not drawn: {reason}; {hint}"))


def _draw(settings: Settings, name: str, progress: Progress) -> Drawn:
    require("card")
    store = storage_of(settings.dataset, settings.cluster)
    version = published_version(store, settings.dataset.name, name)
    with scratch() as folder:
        samples = samples_by_split(store, version, folder)
        facts = read_facts(store, version, samples)
        charts = charts_of(facts)
        page = card_page(
            facts,
            description=settings.dataset.description or "",
            lineage=_lineage(settings, facts),
            charts=charts,
            pictures=pictures(samples, settings.dataset.card.samples, version.id, progress),
        )
    key = layout.card_key(version.id)
    with published_file_errors():
        store.put(key, page.encode())
    url = object_url(store.url, key)
    return Drawn(version.id, url, card_note(facts, charts=charts, url=url))


def _lineage(settings: Settings, facts: CardFacts) -> dict[str, str]:
    version = facts.version
    source = settings.dataset.source.url
    inventory = [f"{file.path} (sha256 {file.sha256})" for file in version.files_of("objects")]
    return {
        "source": "the variables in source.url are not set" if source == UNREAD else source,
        "inventory": ", ".join(inventory),
        "inputs digest": version.inputs,
        "version": version.id,
        "content digest": version.digest,
        "location": location(settings, version.id),
        "segments": ", ".join(use.id for use in version.segments),
        "shard format": ", ".join(facts.formats),
        "omitted rows": f"{version.omitted:,}",
        "skipped": f"{version.skipped:,}",
        **_prepared(facts.run),
    }


def _prepared(run: RunRecord | None) -> dict[str, str]:
    """Return time, place and packages of the run that prepared the version, if recorded."""
    if run is None:
        return {}
    packages = (f"{name} {version}" for name, version in run.packages.items())
    return {
        "prepared": f"{run.began} by {run.flow_run or run.command} on {run.host}",
        "with": ", ".join(packages),
    }


def card_lines(document: Mapping[str, Any]) -> list[str]:
    return [
        f"{document['dataset']} version {document['version']}",
        f"  card     {document['card']}",
    ]


def charts_of(facts: CardFacts) -> dict[str, bytes]:
    """Draw the charts, by title. Their only text from the dataset is names of splits."""
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
