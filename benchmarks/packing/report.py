"""Figures of the benchmark of shards, and tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.harness import Figure, table

__all__ = ["seconds_table", "shares_table", "summary"]


def seconds_table(
    name: str, seconds: Mapping[str, float], base: str, samples: int, size_bytes: int
) -> str:
    """What everybody took, as multiples of ``base``, one of them."""
    rows = [
        (
            contender,
            f"{took:.3f}",
            f"{1e6 * took / samples:,.1f}",
            f"{samples / took:,.0f}",
            f"{size_bytes / took / 1e6:,.0f}",
            f"{took / seconds[base]:.2f}",
        )
        for contender, took in seconds.items()
    ]
    heads = (name, "seconds", "us a sample", "samples/s", "MB/s", f"x {base}")
    return table(heads, rows)


def shares_table(shares: Mapping[str, float], samples: int) -> str:
    """Where the time of ours goes: seconds by part, and ``wall``."""
    wall = shares["wall"]
    rows = [
        (name, f"{part:.3f}", f"{part / wall:.0%}", f"{1e6 * part / samples:.1f}")
        for name, part in shares.items()
    ]
    return table(("where ours goes", "seconds", "of wall", "us a sample"), rows)


def summary(figures: Sequence[Figure]) -> str:
    """All figures, with their targets."""
    rows = []
    for figure in figures:
        others = ", ".join(f"{name} {value:,.3f}" for name, value in figure.peers.items() if value)
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}x"
        goal = f"{figure.target}x" if figure.target else ""
        goal = f"{figure.limit:,.0f}" if figure.limit else goal
        met = {None: "", True: "met", False: "missed"}[figure.met]
        rows.append((figure.name, f"{figure.ours:,.3f}", others, ratio, goal, met))
    return table(("case", "ours", "peers", "ratio", "target", ""), rows)
