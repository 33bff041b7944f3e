"""Prefect's own settings: loaded in one place, which reports an invalid setting by name.

A setting comes from the environment, .env, prefect.toml, pyproject.toml or the active profile, in
this order. Prefect's own errors show the value of the setting, which may be a secret.
"""

from __future__ import annotations

import io
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING

from larder.errors import ConfigError, LarderError

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

_FIELD = re.compile(r'field "(\w+)"|settings from (\S+):')


def load_prefect() -> list[str]:
    """Import the part of Prefect that reads its settings, and have it read them again.

    Returns the lines that it wrote to stderr. ``config.invalid_value``: a setting is invalid; its
    value is not shown.
    """
    # Prefect reports an invalid setting there too, with its value.
    with redirect_stderr(io.StringIO()) as written:
        import prefect

        assert prefect.__version__, "importing it reads its settings"
        try:
            import prefect.context

            prefect.context.refresh_global_settings_context()
        except (ImportError, LarderError):
            raise
        except Exception as error:  # noqa: BLE001 - invalid profiles raise any exception
            raise _refusal(error) from None
    return [line for line in written.getvalue().splitlines() if line.strip()]


def user_settings() -> dict[str, str]:
    """Return the settings of Prefect in the environment or a file, by variable name.

    Prefect is imported only if a file may set some; ``config.invalid_value`` as in `load_prefect`.
    """
    if not _has_file():
        return {name: value for name, value in os.environ.items() if name.startswith("PREFECT_")}
    load_prefect()
    from prefect.settings import get_current_settings

    return get_current_settings().to_environment_variables(exclude_unset=True, include_aliases=True)


def _has_file() -> bool:
    """Whether a file may set settings of Prefect; an unreadable file may."""
    try:
        if profiles_path().exists() or Path("prefect.toml").exists():
            return True
        tools = tomllib.loads(_text(Path("pyproject.toml"))).get("tool", {})
        return "prefect" in tools or "prefect_" in _text(Path(".env")).lower()
    except (OSError, ValueError, TypeError):
        return True


def _text(file: Path) -> str:
    return file.read_text("utf-8") if file.exists() else ""


def startup_seconds() -> float:
    """Return the time that a temporary server may take to start. Call after `load_prefect`."""
    from prefect.settings import get_current_settings

    return float(get_current_settings().server.ephemeral.startup_timeout_seconds)


def profiles_path() -> Path:
    """Return the path of Prefect's profiles; ``config.missing_variable`` without a home."""
    try:
        Path("~").expanduser()
    except RuntimeError:
        message, hint = "environment variable not set", "set it to a directory for Prefect's files"
        raise ConfigError("config.missing_variable", message, where="HOME", hint=hint) from None
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    return Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml")).expanduser()


def _refusal(error: Exception) -> ConfigError:
    """Name the setting or file that Prefect cannot read, if the error tells; never the value."""
    from pydantic import ValidationError
    from pydantic_settings import BaseSettings, SettingsError

    names: list[str] = []
    if isinstance(error, ValidationError):
        mistakes = error.errors(include_url=False, include_input=False, include_context=False)
        prefixes = {
            model.__name__: model.model_config["env_prefix"] for model in _below(BaseSettings)
        }
        prefix = prefixes.get(error.title, "")
        names = [f"{prefix}{mistake['loc'][0]}".upper() for mistake in mistakes if mistake["loc"]]
    elif isinstance(error, SettingsError):
        names = [field.upper() or file for field, file in _FIELD.findall(str(error))]
    where = (
        ", ".join(dict.fromkeys(names))
        or "the environment, .env, prefect.toml, pyproject.toml or profiles.toml"
    )
    hint = "correct it there, or with `prefect config`"
    return ConfigError(
        "config.invalid_value", "Prefect cannot read its settings", where=where, hint=hint
    )


def _below(model: type[BaseSettings]) -> Iterator[type[BaseSettings]]:
    for each in model.__subclasses__():
        yield each
        yield from _below(each)
