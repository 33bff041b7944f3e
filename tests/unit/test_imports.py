"""Which part of Larder may import which; see "Imports" in CONTRIBUTING.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BASE = {
    "errors",
    "failures",
    "units",
    "progress",
    "limits",
    "packages",
    "disk",
    "temporary",
    "atomic",
    "machine",
    "seekable",
    "programs",
}
PURE = BASE | {"config", "manifest"}
STAGES = {"transfer", "shards", "cache", "versions", "experiments"}
BELOW_STAGES = PURE | {"store", "samples"}

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "failures": {"errors"},
    "units": set(),
    "progress": {"errors"},
    "limits": set(),
    "machine": set(),
    "seekable": set(),
    "programs": {"machine"},
    "packages": {"errors"},
    "disk": {"errors", "units"},
    "temporary": {"disk"},
    "atomic": {"disk", "temporary"},
    "config": BASE,
    "manifest": BASE,
    "store": PURE,
    "samples": PURE,
    **dict.fromkeys(STAGES, BELOW_STAGES),
    "pipeline": BELOW_STAGES | STAGES,
    "verify": BELOW_STAGES | STAGES | {"pipeline"},
    "readers": BELOW_STAGES | STAGES,
    "cli": BELOW_STAGES | STAGES | {"pipeline", "verify", "readers", "__init__"},
    "demo": BASE,
    "__init__": {"packages", "pipeline", "readers"},
}
"""For each part of larder: the other parts that it may import."""

ORCHESTRATORS = {"prefect", "prefect_dask", "prefect_ray", "dask", "ray", "tensorflow", "torch"}
NETWORK = {"boto3", "botocore", "pycurl", "http", "httpx", "requests", "socket"}
NETWORK |= {"aiohttp", "gcsfs", "google"}
OUTSIDE = {"store"}
"""The parts that may import what talks to a network."""


def modules(top: str) -> list[Path]:
    return sorted((ROOT / top).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """The dotted names that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part(path: Path) -> str:
    """``cache`` of larder/cache/part.py, ``errors`` of larder/errors.py."""
    return path.relative_to(ROOT / "larder").with_suffix("").parts[0]


def arrows(path: Path) -> set[str]:
    """The other parts of larder that a module of larder imports."""
    names = [f"{name}.__init__".split(".") for name in imported(path)]
    return {name[1] for name in names if name[0] == "larder"} - {part(path)}


def packages(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(path)}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_part_has_its_rule() -> None:
    assert {part(path) for path in modules("larder")} == ALLOWED.keys()


@pytest.mark.parametrize("path", modules("larder"), ids=relative)
def test_larder(path: Path) -> None:
    assert arrows(path) <= ALLOWED[part(path)]
    assert not packages(path) & {"flows", "tasks"}
    assert not packages(path) & ORCHESTRATORS
    assert part(path) in OUTSIDE or not packages(path) & NETWORK


@pytest.mark.parametrize("path", modules("tasks"), ids=relative)
def test_tasks_call_larder_only(path: Path) -> None:
    assert "flows" not in packages(path)
    assert not packages(path) & NETWORK


@pytest.mark.parametrize("path", modules("flows"), ids=relative)
def test_flows_touch_no_bytes(path: Path) -> None:
    stages = {f"larder.{name}" for name in STAGES | {"store", "samples", "manifest"}}
    parts = {".".join(name.split(".")[:2]) for name in imported(path)}
    assert not parts & stages


@pytest.mark.parametrize(
    "path", [path for top in ("larder", "tasks", "flows") for path in modules(top)], ids=relative
)
def test_modules_have_a_docstring_and_only_faces_list_names(path: Path) -> None:
    tree = ast.parse(path.read_text())
    listed = any(
        isinstance(target, ast.Name) and target.id == "__all__"
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
    )
    assert not listed or path.name == "__init__.py" or relative(path) == "larder/config/models.py"
    assert ast.get_docstring(tree)
