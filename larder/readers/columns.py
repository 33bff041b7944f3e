"""Selection of the columns of a batch, and checks of options."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from larder.errors import ConfigError
from larder.readers.schedule import invalid
from larder.units import format_names

_MOST_NAMES = 20


def select(batch: Any, columns: Sequence[str] | None) -> Any:
    """Return the values with these names, as a tuple.

    The whole batch is returned if ``columns`` is None, or if the batch is no dictionary.

    Raises:
        ConfigError: ``config.invalid_value``: the batch has no such value.
    """
    if columns is None or not isinstance(batch, Mapping):
        return batch
    check_columns(batch, columns)
    return tuple(batch[name] for name in columns)


def check_list(names: Any, where: str) -> None:
    """Refuse any value but a list of names; a string would be a list of its letters."""
    if isinstance(names, str) or not isinstance(names, Collection | bool | None):
        hint = f"write [{names!r}]" if isinstance(names, str) else ""
        raise invalid(f"{names!r} is no list of names", where, hint)


def check_function(value: Any, where: str) -> None:
    if value is not None and not callable(value):
        raise invalid(f"{value!r} is no function", where)


def check_columns(names: Collection[str], columns: Iterable[str], where: str = "columns") -> None:
    for name in columns:
        if name not in names:
            hint = f"the values are: {format_names(sorted(names), _MOST_NAMES)}"
            message = f"there is no value {name!r} in a batch"
            raise ConfigError("config.invalid_value", message, where=where, hint=hint)
