"""A location with an absolute URL, and the endpoint that the environment chooses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from larder.config.models.field_types import Model
from larder.config.models.locations import Location
from larder.config.urls import environment_endpoint, resolve_url
from larder.errors import ConfigError

M = TypeVar("M", bound=Model)
L = TypeVar("L", bound=Location)


def located(location: L, environ: Mapping[str, str], key: str) -> L:
    """Make a path absolute; give a bucket the endpoint that the environment chooses.

    So two names of a server are recognised as equal, and a server other than the provider's is not
    priced like the provider's own.
    """
    url = _absolute(location.url, key)
    report = getattr(location, "inventory", None)
    if report is not None:
        absolute = _absolute(report.url, key.replace("url", "inventory.url"))
        location = with_fields(location, inventory=with_fields(report, url=absolute))
    access = location.access
    endpoint = ""
    if not (access.endpoint or access.profile):
        endpoint = environment_endpoint(location.provider, environ)
    changes = {"endpoint": endpoint} if endpoint else {}
    return with_fields(location, url=url, **changes)


def _absolute(url: str, key: str) -> str:
    try:
        return resolve_url(url, Path.cwd())
    except ConfigError as error:
        raise ConfigError(error.code, error.message, where=key, hint=error.hint) from None


def with_fields(model: M, **changes: Any) -> M:
    """Copy a model with other values, which are validated like the values of a file."""
    fields = {name: getattr(model, name) for name in type(model).model_fields}
    return type(model).model_validate(fields | changes)
