"""Credentials that are kept elsewhere under a name, such as in Prefect's blocks.

This library does not know where: whoever does registers a loader for a kind of block. The flows do
so for Prefect (`tasks._blocks`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from larder.errors import ConfigError

Loader = Callable[[str], Mapping[str, Any]]
"""Returns the content of the block with a name; raises ConfigError if there is none."""

_NAMES = (
    ("aws_access_key_id", "access_key_id"),
    ("aws_secret_access_key", "secret_access_key"),
    ("aws_session_token", "session_token"),
)

_lock = threading.Lock()
_loaders: dict[str, Loader] = {}


def register(kind: str, loader: Loader) -> None:
    """Say how blocks of a kind (what precedes the slash in ``block``) are loaded by their names;
    replaces what was said before. The loader is called from any thread.
    """
    with _lock:
        _loaders[kind] = loader


def load(block: str) -> Mapping[str, Any]:
    """The content of a block ``KIND/NAME``, with its secrets; ``config.block`` if there is none."""
    kind, _, name = block.partition("/")
    with _lock:
        loader = _loaders.get(kind)
    if loader is None:
        raise ConfigError(
            "config.block",
            "blocks are kept by Prefect, which this command does without",
            where=f"block {block}",
            hint="run it as python -m flows.NAME with PREFECT_API_URL set, or name a profile",
        )
    return loader(name)


def aws_keys(block: str) -> tuple[str, str, str]:
    """The access key, the secret and the session token ("" if none) in a block ``KIND/NAME``."""
    content = load(block)
    found = [_text(content, names) for names in _NAMES]
    if not (found[0] and found[1]):
        message = "the block has no access_key_id and secret_access_key"
        raise ConfigError("config.block", message, where=f"block {block}")
    if not all(text.isascii() and text.isprintable() for text in found):
        message = "the block has keys with a line break or another invalid character"
        raise ConfigError("config.block", message, where=f"block {block}")
    return found[0], found[1], found[2]


def _text(content: Mapping[str, Any], names: tuple[str, ...]) -> str:
    found = next((content[name] for name in names if content.get(name)), "")
    return found if isinstance(found, str) else ""
