"""Wrong input ends with status 2 and one clear error, never as a bug in Larder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.runs.command import main
from larder.cli.exit import run

CONFIGS = Path(__file__).parents[2] / "configs"
BUCKET = "source.url=s3://bucket/x"
Refused = Callable[..., dict[str, Any]]


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refused:
    """Plan a run that has to be refused with status 2; the error of its document."""
    shutil.copytree(CONFIGS, tmp_path / "configs")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.txt").write_text("a")
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)

    def refused(*settings: str) -> dict[str, Any]:
        arguments = ["--dataset", "files", "--plan", "--json", "--quiet"]
        for setting in ("source.url=source", *settings):
            arguments += ["--set", setting]
        status = run(lambda: main("prepare", arguments), json=True)
        told = capsys.readouterr()
        document: dict[str, Any] = json.loads(told.out)
        error: dict[str, Any] = document["error"]
        assert (status, error["code"].partition(".")[0]) == (2, "config"), told.err
        assert "Traceback" not in told.err
        return error

    return refused


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ([BUCKET, "source.endpoint=localhost:7481"], "config.invalid_value"),
        ([BUCKET, "source.endpoint=http://"], "config.invalid_value"),
        ([BUCKET, "source.endpoint=http://127.0.0.1:99999"], "config.invalid_value"),
        ([BUCKET, "source.endpoint=ftp://127.0.0.1:9"], "config.unsupported_url"),
        (["source.url=ftp://127.0.0.1/x"], "config.unsupported_url"),
        (["source.url=s3:///x"], "config.unsupported_url"),
        (["source.url=~no-such-user/x"], "config.path"),
        (["source.url=file"], "config.path"),
        (["source.url=file/x"], "config.path"),
        (["source.url=" + "x" * 300], "config.path"),
        (["source.url=a\0b"], "config.invalid_value"),
        (["source.url=a\udcff"], "config.invalid_value"),
        (["cluster.storage.url=~no-such-user/x"], "config.path"),
        (["cluster.storage.url=file"], "config.path"),
        (["cluster.storage.url=file/x/y"], "config.path"),
        (["cluster.storage.url=" + "x" * 300], "config.path"),
        (["splits={by: hash, seed: 7, fractions: {a: .nan}}"], "config.invalid_value"),
        (["splits={by: hash, seed: 7, fractions: {a: .inf}}"], "config.invalid_value"),
        (["splits={by: hash, seed: true, fractions: {a: 1}}"], "config.invalid_value"),
        (
            ["splits={by: hash, seed: 7, fractions: {a: 1}, group: '(a{99999999999})'}"],
            "config.invalid_value",
        ),
        (["cluster.copy.max_cost_usd=.nan"], "config.invalid_value"),
        (["cluster.copy.max_cost_usd=.inf"], "config.invalid_value"),
        (["cluster.copy.max_cost_usd=" + "9" * 400], "config.invalid_value"),
        (["cluster.copy.memory_bytes=" + "9" * 900], "config.invalid_value"),
        (["shards.bytes=" + "9" * 400 + ".5 PB"], "config.invalid_value"),
        (["shards.bytes=" + "9" * 5000 + " B"], "config.invalid_value"),
        (["labels.files.train=s3://bucket/x"], "config.label"),
        (["labels.files.train=" + "x" * 300], "config.label"),
        (["source.region=us west"], "config.invalid_value"),
    ],
)
def test_former_bugs_are_clear_errors(refused: Refused, settings: list[str], code: str) -> None:
    assert refused(*settings)["code"] == code


@pytest.mark.parametrize("key", ["source.url", "cluster.storage.url"])
@pytest.mark.parametrize("path", ["file", "file/below", "file/far/below"])
def test_a_file_where_a_directory_belongs_is_named(refused: Refused, key: str, path: str) -> None:
    error = refused(f"{key}={path}")
    assert error["message"] == "it is not a directory"
    assert error["where"] == str(Path.cwd() / "file")
