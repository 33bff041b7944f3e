"""An order is a promise: training that is resumed with a newer Larder goes on with it."""

import hashlib
from pathlib import Path

import numpy as np
from golden_identities import assert_golden

from larder.readers.epoch_order import Full, Window, epoch_words


def digest(numbers):
    return hashlib.sha256(np.asarray(numbers, "<i8").tobytes()).hexdigest()


def test_orders_do_not_change():
    shards = tuple(40 + number % 7 for number in range(60))
    of_kind = {kind: epoch_words("ab" * 16, "train", 7, 1, kind) for kind in ("full", "window")}
    window = Window(shards, 24, 240, 12, of_kind["window"])
    full = Full(sum(shards), of_kind["full"])
    large = Full(10**9, of_kind["full"])
    numbers = {
        "full": full.numbers(0, 1_000),
        "large": large.numbers(10**8, 10**8 + 1_000),
        "window": window.numbers(0, 1_000),
        "window's end": window.numbers(sum(shards) - 1_000, sum(shards)),
    }
    found = {
        kind: {"first": each[:5].tolist(), "digest": digest(each)} for kind, each in numbers.items()
    }
    assert_golden("orders", found)


def test_the_page_shows_the_orders():
    page = Path(__file__).parents[3] / "docs/how-to/shuffling-and-resuming.md"
    text = page.read_text()
    names = [f"{shard}{number}" for shard in "abcd" for number in range(1, 7)]
    of_kind = {kind: epoch_words("0" * 32, "train", 1, 0, kind) for kind in ("full", "window")}
    full = Full(24, of_kind["full"]).numbers(0, 24)
    window = Window((6,) * 4, 4, 8, 2, of_kind["window"]).numbers(0, 24)
    for batch in range(6):
        one, other = (
            [names[n] for n in each[4 * batch : 4 * batch + 4]] for each in (full, window)
        )
        assert f"batch {batch}   {' '.join(one)}\n" in text
        assert f"{batch}  {' '.join(other[:2])} | {' '.join(other[2:])}" in text
