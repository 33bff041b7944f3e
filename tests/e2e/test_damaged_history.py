"""A history of Prefect that no server can read is named, with what to do about it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from flows.runs.prefect_settings import startup_seconds
from flows.runs.server import TemporaryServer
from tests.support.errors import larder_error

pytestmark = pytest.mark.push


def damaged(file: Path) -> None:
    file.write_bytes(b"no database" * 1000)


def of_a_newer_prefect(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("create table alembic_version (version_num varchar(32) not null)")
        database.execute("insert into alembic_version values ('ffffffffffff')")
    database.close()


@pytest.mark.parametrize("make", [damaged, of_a_newer_prefect])
def test_a_history_that_cannot_be_read_is_named(tmp_path, monkeypatch, make):
    file = tmp_path / "prefect.db"
    make(file)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_SERVER_LOGGING_LEVEL", "ERROR")
    monkeypatch.setattr("prefect.context.GLOBAL_SETTINGS_CONTEXT", None)  # of other tests
    server = TemporaryServer()
    with larder_error("run.server") as refused:
        server.wait(startup_seconds() * 2)
    server.close()
    assert f"{file} is damaged, or of a newer Prefect" in refused.value.hint
