"""The page of a card: HTML with everything in it, which loads nothing and runs no script.

Keys, class names and texts of samples may be anything: all contents of elements are escaped, and
the browser is told to load nothing.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from larder.card.card_facts import CardFacts
from larder.card.pictures import Picture
from larder.errors import printable
from larder.units import format_bytes, format_changes, format_count, format_names

_NAMES = 10

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """\
body { font: 15px/1.45 system-ui, sans-serif; max-width: 64rem; margin: 0 auto; padding: 2rem;
  color: #222; } h1 { margin: 0; } h2 { margin: 2.4rem 0 .8rem; font-size: 1.25rem; }
p { margin: .3rem 0; overflow-wrap: anywhere; } .id, .lineage td + td { font: 13px monospace; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin-top: 1.4rem; }
.tiles p { flex: 1; padding: .8rem 1rem; background: #f2f4f7; border-radius: 6px; margin: 0; }
.tiles b { display: block; font-size: 1.5rem; }
table { border-collapse: collapse; width: 100%; } .classes { max-height: 27rem; overflow-y: auto; }
td, th { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #e4e6e8; overflow-wrap: anywhere; }
th { position: sticky; top: 0; background: #fff; color: #555; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.lineage td:first-child { white-space: nowrap; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 0 2rem; }
.charts img { width: 100%; }
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(130px, 1fr)); gap: 1rem; }
figure { margin: 0; overflow: hidden; }
figcaption { font-size: 12px; margin-top: .3rem; overflow-wrap: anywhere; }
figure img, pre { width: 100%; height: 120px; margin: 0; background: #f2f4f7; border-radius: 6px; }
figure img { object-fit: contain; } .small { image-rendering: pixelated; }
pre { font-size: 11px; white-space: pre-wrap; overflow: hidden; } span { color: #666; }
"""


class Html(str):
    """Text that is HTML already, and is not escaped."""

    __slots__ = ()


def element(name: str, *children: str, class_: str = "") -> Html:
    """Write an element; its children are escaped unless they are `Html`."""
    inner = "".join(child if isinstance(child, Html) else _escaped(child) for child in children)
    return Html(
        f'<{name} class="{class_}">{inner}</{name}>' if class_ else f"<{name}>{inner}</{name}>"
    )


def _escaped(text: str) -> str:
    return "\n".join(html.escape(printable(line)) for line in text.split("\n"))


def card_page(
    facts: CardFacts,
    *,
    description: str,
    lineage: Mapping[str, str],
    charts: Mapping[str, bytes],
    pictures: Iterable[Picture],
) -> str:
    """Write the page.

    Args:
        facts: Counts of the version.
        description: Description of the dataset.
        lineage: Origin of the version, by item.
        charts: PNGs by title.
        pictures: Samples; without samples, their section is left out.
    """
    version = facts.version
    figures = [_figure(version.classes, picture) for picture in pictures]
    drawn = [
        element("div", element("h2", title), _image("image/png", data, title))
        for title, data in charts.items()
    ]
    body = [
        element("h1", version.dataset),
        element("p", description),
        element("p", f"version {version.id}", class_="id"),
        element("div", *_totals(facts), class_="tiles"),
        element("h2", "Splits"),
        _table(*split_rows(facts), numbers=True),
        element("div", *drawn, class_="charts"),
        *([element("h2", "Samples"), element("div", *figures, class_="sheet")] if figures else []),
        *([element("h2", "Classes"), *_classes(facts)] if version.classes else []),
        element("h2", "Changes"),
        *_changes(facts),
        element("h2", "Lineage"),
        element("div", _table([], list(lineage.items())), class_="lineage"),
    ]
    title = element("title", f"{version.dataset} {version.id}")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"{title}<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def card_note(facts: CardFacts, *, charts: Mapping[str, bytes], url: str) -> str:
    """Write the figures and charts of a card in Markdown, without samples and class names."""
    head, rows = split_rows(facts)
    lines = [
        f"| {' | '.join(row)} |" for row in (head, ["---", *["---:"] * (len(head) - 1)], *rows)
    ]
    images = [f"![{title}]({_source('image/png', data)})" for title, data in charts.items()]
    address = f"The whole card, a page for a browser:\n\n~~~~\n{printable(url)}\n~~~~"
    return "\n\n".join(["\n".join(lines), *images, address])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = False) -> Html:
    """Write a table; with ``numbers``, all columns but the first are aligned to the right."""

    def cells(name: str, texts: Sequence[str]) -> Html:
        classes = ["", *["n" if numbers else ""] * (len(texts) - 1)]
        each = (element(name, text, class_=of) for text, of in zip(texts, classes, strict=True))
        return element("tr", *each)

    return element(
        "table", *([cells("th", head)] if head else []), *(cells("td", row) for row in rows)
    )


def _source(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def _image(media_type: str, data: bytes, alternative: str, class_: str = "large") -> Html:
    source, text = _source(media_type, data), html.escape(printable(alternative))
    return Html(f'<img class="{class_}" src="{source}" alt="{text}">')


def _totals(facts: CardFacts) -> list[Html]:
    splits = facts.version.splits.values()
    totals = {
        "samples": f"{sum(split.samples for split in splits):,}",
        "classes": f"{len(facts.version.classes):,}",
        "shards": f"{sum(split.shards for split in splits):,}",
        "in shards": format_bytes(sum(split.bytes for split in splits)),
    }
    return [element("p", element("b", total), name) for name, total in totals.items()]


def split_rows(facts: CardFacts) -> tuple[list[str], list[list[str]]]:
    head = ["split", "samples", "smallest", "mean", "largest", "shards", "size", "mean shard"]
    rows = []
    for name, each in facts.splits.items():
        split = facts.version.splits[name]
        sizes = (each.smallest_bytes, each.mean_bytes, each.largest_bytes)
        shards = (split.bytes, round(split.bytes / max(1, split.shards)))
        rows.append([name, f"{split.samples:,}", *map(format_bytes, sizes), f"{split.shards:,}"])
        rows[-1] += map(format_bytes, shards)
    return head, rows


def _classes(facts: CardFacts) -> list[Html]:
    """List all classes from the largest, with their numbers and their samples in each split."""
    counts = np.stack([split.class_samples for split in facts.splits.values()])
    names = [*facts.version.classes, "(no label)"]
    order = np.argsort(-counts[:, :-1].sum(0), kind="stable").tolist()
    numbers = [*map(str, range(len(order))), ""]
    if counts[:, -1].any():
        order.append(len(order))
    columns = [counts.sum(0), *counts]
    rows = [
        [names[place], *(f"{column[place]:,}" for column in columns), numbers[place]]
        for place in order
    ]
    table = _table(["class", "samples", *facts.splits, "number"], rows, numbers=True)
    return [element("div", table, class_="classes")]


def _figure(classes: Sequence[str], picture: Picture) -> Html:
    shown = element("pre", picture.text)
    if picture.image:
        size = "small" if picture.media_type == "image/png" else "large"
        shown = _image(picture.media_type, picture.image, picture.key, size)
    named = picture.label is not None and 0 <= picture.label < len(classes)
    name = [element("b", classes[picture.label or 0]), " "] if named else []
    where = element("span", f"{picture.split} · {picture.key}")
    return element("figure", shown, element("figcaption", *name, where))


def _changes(facts: CardFacts) -> list[Html]:
    version, previous = facts.version, facts.previous
    if previous is None:
        return [element("p", "No previous version is known.")]
    samples = sum(split.samples for split in version.splits.values())
    counts = format_changes(facts.run.changes) if facts.run else ""
    texts = [
        f"Since version {previous.id}: {format_count(facts.kept_samples, 'sample')} are in "
        f"{format_count(facts.kept_segments, 'segment')} of that version, "
        f"{samples - facts.kept_samples:,} in new ones.",
        *([f"Samples: {counts}."] if counts else []),
    ]
    for verb, names in (
        ("added", sorted(set(version.classes) - set(previous.classes))),
        ("removed", sorted(set(previous.classes) - set(version.classes))),
    ):
        if names:
            shown = [printable(name) for name in names[:_NAMES]]
            texts.append(f"Classes {verb}: {format_names(shown, _NAMES - 1, total=len(names))}.")
    rows = []
    for split in dict.fromkeys([*version.splits, *previous.splits]):
        before, now = (
            each.splits[split].samples if split in each.splits else 0
            for each in (previous, version)
        )
        rows.append([split, f"{before:,}", f"{now:,}", f"{now - before:+,}"])
    table = _table(["split", "before", "now", "difference"], rows, numbers=True)
    return [*(element("p", text) for text in texts), table]
