"""Prefect's own settings: loaded in one place, where an invalid one is reported by name.

A setting comes from the environment, the active profile or a prefect.toml. Prefect's own errors
show its value, which may be a secret.
"""

from __future__ import annotations

import io
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any

from larder.errors import ConfigError, LarderError, ProblemsError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic.fields import FieldInfo

_WHOLE = "Prefect's settings"
_HINT = "set or unset it in the environment, or with `prefect config`"
_FOLLOWS = "default_factory_not_called"
"""Type of an error that only says that there is another one."""
_TELLING = {"literal_error", "enum", "bool_parsing", "int_parsing", "float_parsing", "string_type"}
"""Types of errors whose message says what is allowed, but not the value."""
_DAY_SECONDS = 86_400
_FIELD = re.compile(r'field "(\w+)"')


def load_prefect() -> list[str]:
    """Import the part of Prefect that reads its settings.

    Returns:
        The lines that it wrote to stderr.

    Raises:
        ConfigError: ``config.invalid_value``: a setting is invalid; its value is not shown.
    """
    # Prefect reports an invalid setting there too, with its value.
    with redirect_stderr(io.StringIO()) as written:
        import prefect

        assert prefect.__version__, "importing it reads its settings"
        try:
            from prefect.settings import get_current_settings

            get_current_settings()
            import prefect.context  # the active profile
        except (ImportError, LarderError):
            raise
        except Exception as error:  # noqa: BLE001 - invalid profiles raise any exception
            raise _refusal(error) from None
    return [line for line in written.getvalue().splitlines() if line.strip()]


def startup_seconds() -> float:
    """How long a temporary server may take to start. Call it after `load_prefect`."""
    from prefect.settings import get_current_settings

    seconds = get_current_settings().server.ephemeral.startup_timeout_seconds
    return float(min(max(seconds, 1), _DAY_SECONDS))  # a socket does not accept every number


def profiles_path() -> Path:
    """Where Prefect keeps its profiles."""
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    return Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml")).expanduser()


def _refusal(error: Exception) -> ConfigError:
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    problems: list[ConfigError] = []
    if isinstance(error, ValidationError):
        problems = list(_invalid_values(error))
    elif isinstance(error, SettingsError):
        problems = [_problem(name, _HINT) for name in _unparsable(str(error))]
    elif isinstance(error, tomllib.TOMLDecodeError):
        problems = [_problem(str(path), "not valid TOML") for path in _not_toml()]
    if len(problems) > 1:
        return ProblemsError(problems)
    return problems[0] if problems else _problem(_WHOLE, "see `prefect config view`")


def _problem(where: str, hint: str) -> ConfigError:
    return ConfigError("config.invalid_value", "Prefect cannot read it", where=where, hint=hint)


def _invalid_values(error: ValidationError) -> Iterator[ConfigError]:
    models = {model.__name__: model for model in _models()}
    mistakes = error.errors(include_url=False, include_input=False, include_context=False)
    for mistake in mistakes:
        if mistake["type"] == _FOLLOWS and len(mistakes) > 1:
            continue
        model, names = models.get(error.title), [str(part) for part in mistake["loc"]]
        where = _variable(model, names[0] if names else "*") if model else _WHOLE
        message = mistake["msg"].replace("Input", "it", 1).partition(", unable to")[0]
        yield _problem(where, message if mistake["type"] in _TELLING else _HINT)


def _unparsable(message: str) -> Iterator[str]:
    """The variables that are set for a field that a message names without its model."""
    match = _FIELD.search(message)
    for model in _models() if match else ():
        if match and match[1] in model.model_fields:
            name = _variable(model, match[1])
            if name in os.environ:
                yield name


def _models() -> Iterator[type[BaseModel]]:
    """The classes of Prefect's settings."""
    from prefect.settings.models.root import Settings

    waiting: list[Any] = [Settings]
    for model in waiting:
        yield model
        annotations = [field.annotation for field in model.model_fields.values()]
        waiting += [one for one in annotations if hasattr(one, "model_fields")]


def _variable(model: type[BaseModel], field: str) -> str:
    """The environment variable of a field; if it has several names, the one that is set.

    For ``*``, several incompatible fields, the common prefix of their variables.
    """
    names = [f"{model.model_config.get('env_prefix', '')}{field}".upper()]
    if field in model.model_fields:
        names += _aliases(model.model_fields[field])
    return next((name for name in names if name in os.environ), names[0])


def _aliases(field: FieldInfo) -> list[str]:
    choices = getattr(field.validation_alias, "choices", ())
    return [choice.upper() for choice in choices if isinstance(choice, str)]


def _not_toml() -> Iterator[Path]:
    for path in (profiles_path(), Path("prefect.toml"), Path("pyproject.toml")):
        try:
            tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError:
            yield path
        except (OSError, ValueError):
            continue
