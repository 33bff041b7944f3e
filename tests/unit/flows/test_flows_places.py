"""Which settings of Prefect count: every cell of the table in docs/reference/cli.md."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from prefect.settings import get_current_settings

from flows.runs import deploy_command, flow_command, flow_run, prefect_settings, serve_command
from flows.runs.configure import has_server
from tests.support.errors import larder_error
from tests.support.processes import CHECKOUT

PAGE = (CHECKOUT / "docs/reference/cli.md").read_text()
URL = "http://127.0.0.1:4199/api"
PROFILES = 'active = "team"\n[profiles.team]\n'

COMMANDS = {
    "flows.prepare": lambda: flow_command.main(
        "prepare", ["--dataset", "digits", "--config-dir", str(CHECKOUT / "configs")]
    ),
    "flows.copy": lambda: flow_command.main("copy", ["source", "storage"]),
    "flows.clean": lambda: flow_command.main(
        "clean", ["digits", "--keep", "3", "--storage", "storage"]
    ),
    "flows.deploy": lambda: deploy_command.main(["--pool", "p"]),
    "flows.serve --pool": lambda: serve_command.main(["--pool", "p"]),
    "flows.serve": lambda: serve_command.main([]),
}


def table() -> dict[tuple[str, str], tuple[str, str]]:
    """What stands in a place, and whether a command reads it."""
    lines = PAGE.partition("| place of a setting ")[2].partition("\n\n")[0].splitlines()
    heads, _, *rows = [[cell.strip(" `") for cell in line.split("|")] for line in lines]
    commands = heads[heads.index("such as") + 1 : -1]
    assert commands == list(COMMANDS)
    cells = {}
    for _, place, example, *answers, _ in rows:
        text = example.replace("` `", "\n").replace("URL=URL", f"URL={URL}")
        text = text.replace('"URL"', f'"{URL}"')
        for name, answer in zip(commands, answers, strict=True):
            cells[place, name] = (text, answer)
    return cells


CELLS = table()
PLACES = list(dict.fromkeys(place for place, _ in CELLS))


class AskedError(Exception):
    """The command asks the server of its settings."""


def ask(*_: Any, **__: Any) -> None:
    raise AskedError(get_current_settings().api.url)


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory; no command starts anything, or asks a server."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    clean["PREFECT_HOME"] = str(tmp_path / "home")
    monkeypatch.setattr("prefect.context.GLOBAL_SETTINGS_CONTEXT", None)  # of other tests
    monkeypatch.setattr(flow_run, "_check_server", ask)
    monkeypatch.setattr(serve_command, "_await", ask)
    monkeypatch.setattr(serve_command, "Service", mock.Mock())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    with mock.patch.dict(os.environ, clean, clear=True):
        yield tmp_path


def write(workplace: Path, place: str, text: str) -> None:
    if place == "environment":
        name, _, value = text.partition("=")
        os.environ[name] = value
    elif place == "active profile":
        (workplace / "home/profiles.toml").write_text(f"{PROFILES}{text}\n")
    else:
        (workplace / place).write_text(f"{text}\n")


@pytest.mark.parametrize(("place", "name"), list(CELLS))
def test_a_setting_counts_where_the_table_says_so(workplace, place, name):
    text, answer = CELLS[place, name]
    write(workplace, place, text)
    with pytest.raises(AskedError) as asked:
        COMMANDS[name]()
    assert (str(asked.value) == URL) == (answer == "counts")


@pytest.mark.parametrize(("first", "second"), list(itertools.pairwise(PLACES)))
def test_the_first_place_of_the_table_wins(workplace, first, second):
    write(workplace, first, CELLS[first, "flows.copy"][0])
    write(workplace, second, CELLS[second, "flows.copy"][0].replace("4199", "4198"))
    with pytest.raises(AskedError, match=URL):
        COMMANDS["flows.copy"]()


@pytest.mark.parametrize("name", ["prefect.toml", "pyproject.toml"])
def test_a_file_that_is_not_toml_is_named(workplace, name):
    (workplace / name).write_text("not TOML")
    with larder_error("config.invalid_value", name):
        COMMANDS["flows.copy"]()


def test_files_that_set_nothing_of_prefect_do_not_have_it_imported(workplace, monkeypatch):
    monkeypatch.setattr(prefect_settings, "load_prefect", None)
    (workplace / ".env").write_text("LARDER_SOURCE=source\n")
    (workplace / "pyproject.toml").write_text((CHECKOUT / "pyproject.toml").read_text())
    assert not has_server()


def test_a_file_of_variables_that_is_not_text_is_refused(workplace):
    (workplace / ".env").write_bytes(b"\xff")
    with larder_error("config.invalid_value") as refused:
        has_server()
    assert ".env" in str(refused.value.where)


def test_a_default_of_larder_gives_way_to_a_file(workplace):
    (workplace / ".env").write_text(f"PREFECT_API_URL={URL}\nPREFECT_LOGGING_LEVEL=ERROR\n")
    with pytest.raises(AskedError):
        COMMANDS["flows.copy"]()
    assert get_current_settings().logging.level == "ERROR"
