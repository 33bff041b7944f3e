"""Which packages preparing needs that reading does not, and what installs them."""

from __future__ import annotations

from importlib.util import find_spec

from larder.errors import ConfigError

__all__ = ["DISTRIBUTION", "EXTRAS", "missing_package", "require"]

DISTRIBUTION = "larder-data"
"""Larder's name at the package index, where ``larder`` is another project."""

EXTRAS: dict[str, dict[str, str]] = {
    "prepare": {
        "PIL": "pillow",
        "_duckdb": "duckdb",
        "boto3": "boto3",
        "botocore": "boto3",
        "duckdb": "duckdb",
        "pyarrow": "pyarrow",
        "pydantic": "pydantic",
        "pydantic_core": "pydantic",
        "rich": "rich",
        "yaml": "pyyaml",
    },
    "flows": {"prefect": "prefect"},
}
"""For each extra of the distribution: the modules that it brings, and their packages."""


def require(extra: str) -> None:
    """Look whether the packages of an extra are there, without importing them.

    Raises:
        ConfigError: ``config.missing_package``: some are not; names all of them.
    """
    absent = {package for module, package in EXTRAS[extra].items() if not _is_there(module)}
    if absent:
        raise _refusal(sorted(absent), extra)


def missing_package(error: ImportError) -> ConfigError | None:
    """What to tell the user of an import that failed; None where no package is missing.

    Args:
        error: Its module may be one that a package of an extra needs in turn.
    """
    top = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or top in ("", "larder", "flows", "tasks"):
        return None
    extra = next((extra for extra, modules in EXTRAS.items() if top in modules), "prepare")
    return _refusal([EXTRAS[extra].get(top, top)], extra)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a finder refuses, or the module is half made
        return False


def _refusal(packages: list[str], extra: str) -> ConfigError:
    return ConfigError(
        "config.missing_package",
        f"this needs packages that are not installed: {', '.join(packages)}",
        hint=f"pip install '{DISTRIBUTION}[{extra}]'",
    )
