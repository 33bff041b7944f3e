"""The page of a card: HTML with everything in it, which loads nothing and runs no script.

Keys, class names and texts of samples may be anything: what is put into an element is escaped, and
the browser is told to load nothing.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from larder.card.facts import CardFacts, Changes
from larder.card.pictures import Picture
from larder.errors import printable
from larder.units import format_bytes, format_count, format_names

SHOWN_CLASSES = 1_000
_NAMES = 10

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """\
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; background: #fff; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: left;
  vertical-align: top; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td, figcaption, p { overflow-wrap: anywhere; } img { max-width: 100%; }
.sheet { display: flex; flex-wrap: wrap; gap: .8rem; } figure { margin: 0; width: 160px; }
figure img { min-width: 96px; max-height: 160px; image-rendering: pixelated; }
figure img.large { image-rendering: auto; } figcaption { font-size: 12px; color: #555; }
pre { font-size: 11px; white-space: pre-wrap; overflow: hidden; max-height: 150px; margin: 0; }
"""


class Html(str):
    """Text that is HTML already, and is not escaped."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str) -> Html:
    """An element; its children are escaped unless they are `Html`, ``class_`` is ``class``."""
    inner = "".join(child if isinstance(child, Html) else _escaped(child) for child in children)
    options = "".join(f' {key.rstrip("_")}="{_escaped(text)}"' for key, text in attributes.items())
    return Html(f"<{name}{options}>{inner}</{name}>")


def _escaped(text: str) -> str:
    lines = (html.escape(printable(line)) for line in text.split("\n"))
    return "\n".join(lines)


def card_page(
    facts: CardFacts,
    *,
    description: str,
    lineage: Mapping[str, str],
    charts: Mapping[str, bytes],
    pictures: Iterable[Picture],
) -> str:
    """The page.

    Args:
        facts: What is counted.
        description: Of the dataset.
        lineage: Where the version comes from, by item.
        charts: By what they show, PNGs.
        pictures: Samples; their section is left out if there are none.
    """
    version = facts.version
    figures = [_figure(facts, picture) for picture in pictures]
    body = [
        element("h1", version.dataset),
        element("p", f"version {version.id}"),
        *([element("p", description)] if description else []),
        element("h2", "Splits"),
        _splits(facts),
        *(
            Html(element("h2", title) + _image("image/png", data, title, "large"))
            for title, data in charts.items()
        ),
        *([element("h2", "Classes"), *_classes(facts)] if version.classes else []),
        *([element("h2", "Samples"), element("div", *figures, class_="sheet")] if figures else []),
        element("h2", "Changes"),
        _changes(facts),
        element("h2", "Lineage"),
        _table([], [(name, text) for name, text in lineage.items()]),
    ]
    title = f"{version.dataset} {version.id}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"{element('title', title)}<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = False) -> Html:
    """A table; with ``numbers``, all columns but the first are aligned to the right."""

    def cells(name: str, texts: Sequence[str]) -> Html:
        return element(
            "tr",
            *(
                element(name, text, class_="n" if numbers and place else "t")
                for place, text in enumerate(texts)
            ),
        )

    return element(
        "table", *([cells("th", head)] if head else []), *(cells("td", row) for row in rows)
    )


def _image(media_type: str, data: bytes, alternative: str, class_: str) -> Html:
    source = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
    return Html(f'<img class="{class_}" src="{source}" alt="{html.escape(alternative)}">')


def _splits(facts: CardFacts) -> Html:
    head = ["split", "samples", "smallest", "mean", "largest", "shards", "bytes of shards", "mean"]
    rows = [
        [
            name,
            f"{each.sizes.count:,}",
            *map(format_bytes, (each.sizes.smallest, round(each.sizes.mean), each.sizes.largest)),
            f"{facts.version.splits[name].shards:,}",
            *map(format_bytes, (each.shards.total, round(each.shards.mean))),
        ]
        for name, each in facts.splits.items()
    ]
    return _table(head, rows, numbers=True)


def _classes(facts: CardFacts) -> list[Html]:
    """The classes from the largest to the smallest, with their samples in each split."""
    counts = np.stack([split.class_samples for split in facts.splits.values()])
    names = [*facts.version.classes, "(no label)"]
    order = np.argsort(-counts[:, :-1].sum(0), kind="stable")[:SHOWN_CLASSES].tolist()
    if counts[:, -1].any():
        order.append(len(names) - 1)
    rows = [
        [names[place], *(f"{count:,}" for count in (counts[:, place].sum(), *counts[:, place]))]
        for place in order
    ]
    more = len(facts.version.classes) - SHOWN_CLASSES
    left_out = f"The {SHOWN_CLASSES:,} largest of {len(facts.version.classes):,}."
    return [
        *([element("p", left_out)] if more > 0 else []),
        _table(["class", "samples", *facts.splits], rows, numbers=True),
    ]


def _figure(facts: CardFacts, picture: Picture) -> Html:
    classes, label = facts.version.classes, picture.label
    named = label is not None and 0 <= label < len(classes)
    caption = [picture.key, *([classes[label]] if named and label is not None else [])]
    shown = (
        _image(
            picture.media_type,
            picture.image,
            picture.key,
            "small" if picture.media_type == "image/png" else "large",
        )
        if picture.image
        else element("pre", picture.text)
    )
    return element("figure", shown, element("figcaption", " · ".join([*caption, picture.split])))


def _changes(facts: CardFacts) -> Html:
    changes = facts.changes
    if changes is None:
        return element("p", "No previous version is known.")
    now = {name: split.samples for name, split in facts.version.splits.items()}
    rows = [
        [
            split,
            f"{changes.samples.get(split, 0):,}",
            f"{now.get(split, 0):,}",
            f"{now.get(split, 0) - changes.samples.get(split, 0):+,}",
        ]
        for split in dict.fromkeys([*now, *changes.samples])
    ]
    table = _table(["split", "before", "now", "difference"], rows, numbers=True)
    texts = [element("p", text) for text in _change_texts(changes)]
    return Html("".join([*texts, table]))


def _change_texts(changes: Changes) -> list[str]:
    kept = format_count(changes.kept_segments, "segment")
    texts = [
        f"Since version {changes.previous}: {format_count(changes.kept_samples, 'sample')} are in "
        f"{kept} of that version, {changes.new_samples:,} in new ones."
    ]
    for verb, names in (("added", changes.classes_added), ("removed", changes.classes_removed)):
        if names:
            listed = format_names(
                [printable(name) for name in names[:_NAMES]], _NAMES - 1, total=len(names)
            )
            texts.append(f"Classes {verb}: {listed}.")
    return texts
