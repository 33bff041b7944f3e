"""Whether a Prefect server is configured, and which of Prefect's logs are shown."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from flows.runs.configure import DEFAULTS, SHOWN, configure_prefect, has_server, show_logs
from flows.runs.secrets import Hidden
from tests.support.errors import larder_error

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
    monkeypatch.setattr("prefect.context.GLOBAL_SETTINGS_CONTEXT", None)  # of other tests
    return tmp_path


def test_a_server_is_named_by_the_environment(monkeypatch):
    assert not has_server()
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    assert has_server()
    monkeypatch.setenv("PREFECT_API_URL", "")
    assert not has_server()


def test_a_server_is_named_by_the_active_profile(home, monkeypatch):
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
def test_invalid_profiles_are_refused(home, text):
    (home / "profiles.toml").write_text(text)
    with larder_error("config.invalid_value"):
        has_server()


def test_settings_of_the_user_are_kept():
    with mock.patch.dict(os.environ, PREFECT_LOGGING_LEVEL="DEBUG"):
        configure_prefect()
        assert os.environ["PREFECT_LOGGING_LEVEL"] == "DEBUG"
        assert {name: os.environ[name] for name in DEFAULTS} == {
            **DEFAULTS,
            "PREFECT_LOGGING_LEVEL": "DEBUG",
        }


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of Prefect's own, if another test has imported it, only outside of these tests."""
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    names = (None, "prefect._internal", "prefect", "prefect.flow_runs", "prefect.task_runs")
    loggers = [logging.getLogger(name) for name in names]
    before = [list(logger.handlers) for logger in loggers]
    for logger in loggers[2:]:
        logger.handlers[:] = []
    yield
    for logger, own in zip(loggers, before, strict=True):
        logger.handlers[:] = own


@pytest.mark.usefixtures("handlers")
def test_warnings_are_one_line_and_errors_of_runs_are_left_to_the_command():
    said: list[str] = []
    show_logs(said.append, Hidden([]))
    logging.getLogger("prefect.events.clients").warning("no\n  connection")
    logging.getLogger("prefect.flow_runs").error("Encountered exception", exc_info=ValueError())
    logging.getLogger("prefect.task_runs").warning("a %s", "thing")
    logging.getLogger("prefect.flow_runs").warning("mirror: started", extra={SHOWN: True})
    logging.getLogger("prefect.events").error("an event: %s", "x" * 10_000)
    assert said.pop().endswith("xxx ...")
    assert said == ["warning: no connection", "warning: a thing"]


@pytest.mark.usefixtures("handlers")
def test_a_log_line_shows_no_secret_and_the_runs_own_handlers_stay():
    runs, own, said = logging.getLogger("prefect.flow_runs"), logging.NullHandler(), list[str]()
    runs.addHandler(own)
    try:
        show_logs(said.append, Hidden(["me:hidden1234"]))
        runs.warning("refused: http://me:hidden1234@host/api?key=x, hidden1234")
        assert own in runs.handlers
    finally:
        runs.removeHandler(own)
    assert said == ["warning: refused: http://host/api ***"]


@pytest.mark.parametrize(
    ("level", "of_runs"), [(None, "INFO"), ("ERROR", "INFO"), ("info", "INFO"), ("debug", None)]
)
def test_runs_log_what_they_do_whatever_the_terminal_shows(level, of_runs):
    with mock.patch.dict(os.environ, {"PREFECT_LOGGING_LEVEL": level} if level else {}):
        configure_prefect()
        assert os.environ.get("PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL") == of_runs


def test_settings_of_the_active_profile_are_kept(home):
    (home / "profiles.toml").write_text(PROFILES)
    with mock.patch.dict(os.environ):
        configure_prefect()
        assert "PREFECT_LOGGING_LEVEL" not in os.environ
        assert os.environ["PREFECT_SERVER_LOGGING_LEVEL"] == "ERROR"


@pytest.mark.usefixtures("handlers")
def test_the_terminal_shows_what_its_level_lets_through_of_runs_that_log_more(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(logging.getLogger("prefect"), "level", logging.ERROR)
    monkeypatch.setattr(logging.getLogger("prefect.flow_runs"), "level", logging.INFO)
    show_logs(said.append, Hidden([]))
    logging.getLogger("prefect.flow_runs").info("mirror: started")
    logging.getLogger("prefect.flow_runs").warning("a warning")
    logging.getLogger("prefect.server").error("an error")
    assert said == ["error: an error"]
