import ast
import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import flows
import larder
from larder.packages import EXTRAS, READING, missing_package, require
from tests.support.errors import larder_error

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LIGHT = {"botocore", "google_crc32c", "lmdb", "numpy", "pycurl"}


def imported() -> set[str]:
    """The packages that the library imports anywhere, but for what only tests use."""
    found = set()
    for path in (ROOT / "larder").rglob("*.py"):
        if path.match("skyplane/runner.py"):  # runs in an environment of its own
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"larder"}


def test_every_package_that_is_imported_is_light_or_in_an_extra():
    assert imported() <= LIGHT.union(*EXTRAS.values())


def brought(extra: str) -> set[str]:
    """The packages of an extra, and of the extras that it names."""
    lines = [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]
    named = {name for line in lines if line.name == "larder-data" for name in line.extras}
    return {line.name for line in lines}.union(*map(brought, named))


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_extras_of_the_distribution_bring_them(extra):
    assert set(EXTRAS[extra].values()) <= brought(extra) | brought("flows")


@pytest.mark.parametrize("module", EXTRAS["prepare"])
def test_each_that_is_missing_is_named_with_the_command(module, monkeypatch):
    require("prepare")
    monkeypatch.setitem(sys.modules, module, None)
    with larder_error("config.missing_package") as caught:
        larder.prepare("digits")
    assert caught.value.message.endswith(f": {EXTRAS['prepare'][module]}")


def test_no_page_installs_from_an_index_that_has_no_release():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert not re.search(r"pip install '?larder-data", page.read_text()), page


def test_a_package_that_another_needs_in_turn_is_named_too():
    for name, part in {"jmespath.parser": ": jmespath", "prefect.flows": ": prefect"}.items():
        error = missing_package(ModuleNotFoundError("no", name=name))
        assert error.message.endswith(part)
    assert missing_package(ModuleNotFoundError("no", name="larder.x")) is None
    assert missing_package(ModuleNotFoundError("no")) is None
    assert missing_package(ImportError("broken", name="pyarrow")) is None


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - READING))
def test_an_extra_that_needs_a_newer_python_says_so_in_one_line(extra, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with larder_error("config.missing_package") as caught:
        require(extra)
    assert "this needs 3.11 or newer" in caught.value.message
    lines = PROJECT["optional-dependencies"][extra]
    assert all("python_version >= '3.11'" in line or "larder-data[" in line for line in lines)


def test_preparing_says_so_before_it_imports_anything(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with larder_error("config.missing_package") as caught:
        larder.prepare("digits")
    assert "3.11" in caught.value.message


def test_flows_say_so_in_one_line_with_the_status_of_a_usage_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with pytest.raises(SystemExit) as ended:
        importlib.reload(flows)
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
