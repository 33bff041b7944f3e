"""The options that formats need to write samples of any parts, for tests without a plan."""

from __future__ import annotations

from larder.config.shape import DEFAULTS, FormatOptions, FormatUse, Layout
from larder.shards.formats import FORMATS, shard_format

RAGGED = [name for name in FORMATS if name not in ("records", "recordio")]
"""The formats whose samples may have different parts."""

_EXTS = ("bin", "cls", "jpg", "json", "png", "seg.png", "txt", "zip", "é")


def use(name: str) -> FormatUse:
    """A format of samples with any of these extensions."""
    surveys = shard_format(name).surveys
    layout = Layout(dict.fromkeys(_EXTS), labelled=True)
    return FormatUse(name, FormatOptions(layout=layout) if surveys else DEFAULTS)
