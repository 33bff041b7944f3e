"""Whether a Prefect server is named, and what of Prefect's logs is shown."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from flows._prefect import DEFAULTS, configure_prefect, has_server, show_logs
from flows._secrets import Hidden

PROFILES = """
active = "quiet"
[profiles.quiet]
PREFECT_LOGGING_LEVEL = "ERROR"
[profiles.work]
PREFECT_API_URL = "http://127.0.0.1:4200/api"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("PREFECT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    return tmp_path


def test_a_server_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_server()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    assert has_server()
    monkeypatch.setenv("PREFECT_API_URL", "")
    assert not has_server()


def test_a_server_is_named_by_the_active_profile(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "profiles.toml").write_text(PROFILES)
    assert not has_server()
    monkeypatch.setenv("PREFECT_PROFILE", "work")
    assert has_server()
    monkeypatch.setenv("PREFECT_PROFILE", "unknown")
    assert not has_server()
    monkeypatch.setenv("PREFECT_PROFILES_PATH", str(home / "other.toml"))
    (home / "other.toml").write_text(PROFILES.replace('"quiet"', '"work"'))
    monkeypatch.delenv("PREFECT_PROFILE")
    assert has_server()


@pytest.mark.parametrize("text", ["not TOML", "profiles = 1", 'active = ["x"]'])
def test_profiles_that_make_no_sense_are_prefects_to_complain_about(home: Path, text: str) -> None:
    (home / "profiles.toml").write_text(text)
    assert not has_server()


def test_what_the_user_has_set_stays() -> None:
    with mock.patch.dict(os.environ, PREFECT_LOGGING_LEVEL="DEBUG"):
        configure_prefect()
        assert os.environ["PREFECT_LOGGING_LEVEL"] == "DEBUG"
        assert {name: os.environ[name] for name in DEFAULTS} == {
            **DEFAULTS,
            "PREFECT_LOGGING_LEVEL": "DEBUG",
        }


@pytest.fixture
def handlers() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (None, "prefect._internal")]
    before = [list(logger.handlers) for logger in loggers]
    yield
    for logger, own in zip(loggers, before, strict=True):
        logger.handlers[:] = own


@pytest.mark.usefixtures("handlers")
def test_warnings_are_one_line_and_errors_of_runs_are_left_to_the_command() -> None:
    said: list[str] = []
    show_logs(said.append, Hidden([]))
    logging.getLogger("prefect.events.clients").warning("no\n  connection")
    logging.getLogger("prefect.flow_runs").error("Encountered exception", exc_info=ValueError())
    logging.getLogger("prefect.task_runs").warning("a %s", "thing")
    assert said == ["warning: no connection", "warning: a thing"]
