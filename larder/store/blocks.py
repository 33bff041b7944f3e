"""Credentials that are kept elsewhere, such as in Prefect's blocks.

Callers `register` a loader for each kind of block; the flows do so for Prefect (`tasks.blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from larder.errors import ConfigError
from larder.forking import lock_of_process

Loader = Callable[[str], Mapping[str, Any]]
"""Loader of the block with a name; raises ConfigError if there is none."""

_NAMES = (
    ("aws_access_key_id", "access_key_id"),
    ("aws_secret_access_key", "secret_access_key"),
    ("aws_session_token", "session_token"),
)

_lock = lock_of_process()
_loaders: dict[str, Loader] = {}


def register(kind: str, loader: Loader) -> None:
    """Register or replace the loader of a kind of block. Any thread may call the loader."""
    with _lock:
        _loaders[kind] = loader


def load(block: str) -> Mapping[str, Any]:
    """Load a block ``KIND/NAME`` with its secrets; raise ``config.block`` if there is none."""
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
    """Load access key, secret and session token ("" if none) from a block ``KIND/NAME``."""
    content = load(block)
    key, secret, token = (_text(content, names) for names in _NAMES)
    together, message = key + secret + token, ""
    if not (key and secret):
        message = "the block has no access_key_id and secret_access_key"
    elif not (together.isascii() and together.isprintable()):
        message = "the block has keys with a line break or another invalid character"
    if message:
        raise ConfigError("config.block", message, where=f"block {block}")
    return key, secret, token


def _text(content: Mapping[str, Any], names: tuple[str, ...]) -> str:
    value = next((content[name] for name in names if content.get(name)), "")
    return value if isinstance(value, str) else ""
