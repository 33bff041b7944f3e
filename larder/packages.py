"""The packages that preparing needs but reading does not, and how to install them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from platform import python_version

from larder.errors import ConfigError

EXTRAS: dict[str, dict[str, str]] = {
    "prepare": {
        "PIL": "pillow",
        "_duckdb": "duckdb",
        "duckdb": "duckdb",
        "pathspec": "pathspec",
        "pyarrow": "pyarrow",
        "pydantic": "pydantic",
        "pydantic_core": "pydantic",
        "regex": "regex",
        "rich": "rich",
        "ruamel": "ruamel.yaml",
    },
    "card": {"matplotlib": "matplotlib"},
    "dask": {"distributed": "prefect-dask", "prefect_dask": "prefect-dask"},
    "flows": {"prefect": "prefect"},
    "gcs": {"gcsfs": "gcsfs", "google": "gcsfs"},
    "jpeg": {"PIL": "pillow", "simplejpeg": "simplejpeg"},
    "ray": {"prefect_ray": "prefect-ray", "ray": "prefect-ray"},
    "tensorflow": {
        "keras": "tensorflow-cpu",
        "ml_dtypes": "tensorflow-cpu",
        "tensorflow": "tensorflow-cpu",
    },
    "torch": {"torch": "torch"},
}
"""For each extra of the distribution: the modules that it installs, and their packages."""

READING = frozenset({"gcs", "jpeg", "tensorflow", "torch"})
"""The extras for reading, with Python 3.10 or newer; all others need `PREPARES`."""

PREPARES = (3, 11)
"""The first Python with which datasets are prepared: duckdb 2 has no wheels for older ones."""


def install_hint(extra: str) -> str:
    """Return the command for an extra: from a checkout, until the package index has a release."""
    return f"in a checkout of Larder: pip install '.[{extra}]'"


def require(extra: str) -> None:
    """Refuse missing packages of an extra, without importing any: ``config.missing_package``."""
    if sys.version_info < PREPARES and extra not in READING:
        raise _refusal([], extra)
    absent = {package for module, package in EXTRAS[extra].items() if not is_installed(module)}
    if absent:
        raise _refusal(sorted(absent), extra)


def require_module(extra: str, module: str) -> None:
    """Check that a module which an extra brings is installed; ``config.missing_package``."""
    if not is_installed(module):
        raise _refusal([EXTRAS[extra][module]], extra)


def missing_package(error: ImportError) -> ConfigError | None:
    """Return the error for a failed import; None if no package is missing."""
    top = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or top in ("", "larder", "flows", "tasks"):
        return None
    extra = next((extra for extra, modules in EXTRAS.items() if top in modules), "prepare")
    return _refusal([EXTRAS[extra].get(top, top)], extra)


def failed_import(error: ImportError, what: str) -> ConfigError:
    """Return the error for a failed import that had to succeed, which is no fault of the data."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    hint = "install what is missing, or install the package again"
    return ConfigError(
        "config.missing_package", f"an import fails: {reason}", where=what, hint=hint
    )


def is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a finder fails, or the module is partly initialised
        return False


def _refusal(packages: list[str], extra: str) -> ConfigError:
    message = f"this needs packages that are not installed: {', '.join(packages)}"
    hint = install_hint(extra)
    if sys.version_info < PREPARES and extra not in READING:
        message = f"only reading works with Python {python_version()}: this needs 3.11 or newer"
        hint = "prepare with a newer Python; training code reads the result with this one"
    return ConfigError("config.missing_package", message, hint=hint)
