"""Everything public has a docstring, also methods of private classes and special methods.

ruff checks public classes only. What ``__init__`` takes is in the docstring of its class.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path for top in ("larder", "tasks", "flows") for path in (ROOT / top).rglob("*.py")
)


def undocumented(node: ast.Module | ast.ClassDef, name: str) -> Iterator[str]:
    """The names of what lacks a docstring in a module or class."""
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}.{child.name}"
            if is_public(child.name) and not ast.get_docstring(child):
                yield inner
            if isinstance(child, ast.ClassDef):
                yield from undocumented(child, inner)


def is_public(name: str) -> bool:
    return name != "__init__" and (not name.startswith("_") or name.endswith("__"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_public_has_a_docstring(path: Path) -> None:
    module = ast.parse(path.read_text())
    assert ast.get_docstring(module)
    assert not list(undocumented(module, path.stem))
