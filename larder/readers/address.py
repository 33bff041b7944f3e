"""The address of a version: the URL that a user gives, parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from larder.config.urls import check_url
from larder.errors import ConfigError

_ADDRESS = re.compile(
    r"(?P<root>(?:.*/)?larder/(?P<dataset>[a-z0-9][a-z0-9_-]*))"
    r"(?:@(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)|/versions/(?P<version>[0-9a-f]{32}))?/?",
    re.DOTALL,
)
_VERSION = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Address:
    """A version: ``root`` is the URL or path of ``.../larder/DATASET``, ``name`` a tag or an ID."""

    root: str
    dataset: str
    name: str

    @property
    def is_version(self) -> bool:
        """Whether ``name`` is the ID of a version."""
        return _VERSION.fullmatch(self.name) is not None


def parse_address(url: str) -> Address:
    """Parse ``ROOT/larder/DATASET``, ``...@TAG``, ``...@ID`` or ``.../versions/ID``.

    Without a name, the tag is ``latest``. Other forms are refused with ``config.invalid_value``.
    """
    if url:
        check_url(url)
    match = _ADDRESS.fullmatch(url)
    if match is None:
        raise ConfigError(
            "config.invalid_value",
            "not the address of a dataset",
            where=url,
            hint="write ROOT/larder/DATASET@TAG, such as s3://bucket/larder/imagenet@latest",
        )
    return Address(match["root"], match["dataset"], match["name"] or match["version"] or "latest")
