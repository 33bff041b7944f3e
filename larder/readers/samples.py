"""A sample as training code gets it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Sample(NamedTuple):
    """A sample.

    Attributes:
        key: Its key.
        label: The number of its class; None without labels.
        parts: The content of each part by extension, with the label as ``cls``.
    """

    key: str
    label: int | None
    parts: Mapping[str, bytes]
