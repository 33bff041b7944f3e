"""Credentials in Prefect's blocks, for locations that name a block.

Blocks are read from the server as stored, so that the packages that define blocks, such as
prefect-aws, need not be installed. Prefect itself is imported when the first block is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from larder.errors import ConfigError, StoreError
from larder.store.blocks import register

_KINDS = ("aws-credentials", "gcp-credentials", "secret")


def register_blocks() -> None:
    """Let stores load their credentials from Prefect's blocks, in this process."""
    for kind in _KINDS:
        register(kind, partial(_load, kind))


def _load(kind: str, name: str) -> Mapping[str, Any]:
    from prefect import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.settings import get_current_settings

    where = f"block {kind}/{name}"
    if not get_current_settings().api.url:
        message, hint = "no Prefect server is configured", "set PREFECT_API_URL"
        raise ConfigError("config.block", message, where=where, hint=hint)
    try:
        with get_client(sync_client=True) as client:
            document = client.read_block_document_by_name(name, kind, include_secrets=True)
    except ObjectNotFound:
        hint = "create it in Prefect, and set PREFECT_API_URL to the server that has it"
        message = "Prefect has no such block"
        raise ConfigError("config.block", message, where=where, hint=hint) from None
    except Exception as error:  # noqa: BLE001 - its HTTP client has errors of its own
        message = f"Prefect's server does not give it: {type(error).__name__}"
        hint = "see PREFECT_API_URL"
        raise StoreError("store.denied", message, where=where, hint=hint) from None
    content = document.data.get("value") if kind == "secret" else document.data
    if isinstance(content, str):
        with suppress(ValueError):
            content = json.loads(content)
    if not isinstance(content, Mapping):
        message = "the block's value is not a mapping of names to values"
        raise ConfigError("config.block", message, where=where)
    return content
