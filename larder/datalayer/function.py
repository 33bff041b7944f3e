"""Digests of a function's inputs: its source, constants and arguments.

Comments, line breaks and decorators of the source do not count. Plain values that the function
reads from its closure and its module count. Only digests are kept, because a value may be a secret.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from types import CodeType, FunctionType
from typing import Any

from larder.forking import parsing

_PLAIN = (bool, int, float, complex, str, bytes, type(None), PurePath)


def digests(
    function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, str]:
    """Return digests by name in messages; a changed digest means a possibly changed function."""
    parts = {f"argument {number}": repr(value) for number, value in _plain(enumerate(arguments))}
    parts |= {f"argument {name}": repr(value) for name, value in _plain(named.items())}
    plain = inspect.unwrap(function)
    plain = getattr(plain, "__func__", plain)  # the function of a method
    if inspect.isfunction(plain):
        if source := _source(plain):
            parts["source"] = source
        parts |= {name: repr(value) for name, value in _plain(_around(plain))}
    return {
        name: hashlib.sha256(text.encode(errors="replace")).hexdigest()
        for name, text in parts.items()
    }


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return sorted(name for name in before.keys() | now if before.get(name) != now.get(name))


def _plain(items: Any) -> list[tuple[Any, Any]]:
    return [(name, value) for name, value in items if _is_plain(value)]


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value.items()))
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _around(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield variables of module and closure that a function, or a function inside, names."""
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the cell is not set yet
            yield name, cell.cell_contents


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _source(function: Any) -> str:
    """Return the normalized source; empty if unknown, such as of a function typed into a shell."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
        with parsing:
            (statement,) = ast.parse(source).body
    except (OSError, TypeError, SyntaxError, ValueError):  # ValueError: part of an expression
        return ""
    if isinstance(statement, ast.FunctionDef):
        statement.decorator_list = []
    return ast.unparse(statement)
