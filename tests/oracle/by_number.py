"""Samples by number: what `samples_of`, `samples`, `cache`, `torch_samples` and grain give."""

from __future__ import annotations

import random
from importlib.util import find_spec
from typing import Any

import numpy as np

from tests.oracle.lab import Lab
from tests.oracle.oracle import Options, Sample, Single, Values, differs, stacked
from tests.oracle.rows import SINGLE

NUMBERS = {"form": SINGLE["form"], "place": ("directory", "s3", "gcs")}


def play_numbers(lab: Lab, form: str, place: str, seed: int) -> str | None:
    """Read random samples in every way; the first difference, or None."""
    draw, dataset = random.Random(seed), lab.dataset(form)
    data, samples = lab.data(form, place, bad=False), dataset.samples
    count = len(samples)
    numbers = [draw.randrange(count) for _ in range(draw.randrange(1, 20))]
    first, last = sorted(draw.sample(range(count + 1), 2))
    piece = slice(draw.choice((None, first, first - count)), draw.choice((None, last)), 3)
    keep = str(lab.place / "kept") if place == "s3" and draw.random() < 0.5 else None
    read = data.samples_of("train", keep=keep)
    one = numbers[0]
    pairs: list[tuple[str, Any, Any]] = [
        ("len", len(read), count),
        ("[n]", [told(read[np.int64(one)])], [parts_of(samples[one])]),
        ("[-n]", [told(read[one - count])], [parts_of(samples[one])]),
        ("slice", [*map(told, read[piece])], [*map(parts_of, samples[piece])]),
        ("batch", [*map(told, read.batch(numbers))], [parts_of(samples[n]) for n in numbers]),
    ]
    some = data.samples("train", start=first, stop=last)
    pairs.append(("samples", [*map(told, some)], [*map(parts_of, samples[first:last])]))
    plain = Single(dataset, Options(1, {}))
    values = {n: plain.values(samples[n]) for n in [*numbers, *range(count)[piece]]}
    if dataset.kind != "shards":
        cache = data.cache("train")
        wanted = stacked([values[n] for n in numbers], plain.fields(), plain.lists)
        pairs += [
            ("cache[n]", cache[one], values[one]),
            ("cache slice", list(cache[piece]), [values[n] for n in range(count)[piece]]),
            ("cache.batch", cache.batch(numbers), wanted),
        ]
    if find_spec("torch"):
        of_torch = data.torch_samples("train")
        pairs += [
            ("torch_samples", of_torch[one], values[one]),
            ("__getitems__", of_torch.__getitems__(numbers), [values[n] for n in numbers]),
        ]
    if find_spec("grain"):
        import grain

        labels = grain.MapDataset.source(read).map(lambda sample: sample.key).batch(4)
        keys = [samples[n].key for n in range(count)]
        pairs.append(("grain", [list(each) for each in labels][1], keys[4:8]))
    found = (differs(got, wanted, f"{form} in {place}: {name}") for name, got, wanted in pairs)
    return next((each for each in found if each), None)


def told(sample: Any) -> Values:
    """A sample by number, as values."""
    return {"key": sample.key, "label": sample.label, "parts": dict(sample.parts)}


def parts_of(sample: Sample) -> Values:
    """The same of the oracle; a label is the part ``cls``: docs/reference/formats.md."""
    label = {} if sample.label is None else {"cls": b"%d" % sample.label}
    return {"key": sample.key, "label": sample.label, "parts": {**sample.parts, **label}}
