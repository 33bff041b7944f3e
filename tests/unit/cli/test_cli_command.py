"""Flags, exit statuses, and errors as one line and one JSON document."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from larder.cli.arguments import add_dataset, parser
from larder.cli.exit import run
from larder.errors import (
    ConfigError,
    DamageError,
    LarderError,
    ObjectError,
    ProblemsError,
    RetryableError,
    StoreError,
)
from tests.support.errors import larder_error
from tests.support.processes import CHECKOUT

SCRIPT = """
import sys
from larder.cli.arguments import add_dataset, parser
from larder.cli.exit import run
from larder.cli.output import print_text
flags = parser("flows.x", "Do x.", add_dataset)
sys.exit(run(lambda: print_text(str(flags.parse_args())) or 0))
"""


def raising(error: BaseException) -> Callable[[], int]:
    def main() -> int:
        raise error

    return main


@pytest.mark.parametrize(
    "arguments",
    [(), ("--dataset",), ("--dataset", "d", "more"), ("--data", "d"), ("--datset", "digits")],
)
def test_wrong_flags_are_refused(arguments):
    with larder_error("config.invalid_flag"):
        parser("python -m flows.x", "Do x.", add_dataset).parse_args(arguments)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ConfigError("config.invalid_value", "m"), 2, "config.invalid_value"),
        (StoreError("store.denied", "m"), 3, "store.denied"),
        (RetryableError("store.unavailable", "m"), 3, "store.unavailable"),
        (DamageError("damage.digest", "m"), 4, "damage.digest"),
        (ObjectError("object.unreadable", "m"), 1, "object.unreadable"),
        (LarderError("run.failed", "m", where="w", hint="h"), 1, "run.failed"),
        (KeyboardInterrupt(), 130, "run.interrupted"),
        (ValueError("two\nlines"), 1, "run.internal"),
        (MemoryError(), 1, "run.limit"),
        (RuntimeError("can't start new thread"), 1, "run.limit"),
    ],
)
def test_errors_are_one_line_and_one_document(capsys, error, status, code):
    assert run(raising(error), json=False) == status
    plain = capsys.readouterr()
    assert plain.out == ""
    assert plain.err.startswith(f"error[{code}]: ")
    assert plain.err.count("\n") == 1
    assert run(raising(error), json=True) == status
    both = capsys.readouterr()
    assert both.err == plain.err
    document = json.loads(both.out)
    assert list(document) == ["error"]
    assert list(document["error"]) == ["code", "message", "where", "hint"]
    assert document["error"]["code"] == code


def test_a_traceback_only_when_asked_for(capsys, monkeypatch):
    monkeypatch.setenv("LARDER_DEBUG", "1")
    assert run(raising(ValueError("x")), json=False) == 1
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setenv("LARDER_DEBUG", "0")
    run(raising(ValueError("x")), json=False)
    assert "Traceback" not in capsys.readouterr().err


def test_the_status_of_main_and_of_exit():
    assert run(lambda: 4, json=False) == 4
    assert run(raising(SystemExit(0)), json=False) == 0
    assert run(raising(SystemExit(None)), json=False) == 0
    assert run(raising(SystemExit("text")), json=False) == 1


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("--dataset=d", 1)])
def test_a_closed_pipe_leaves_no_traceback(argument, status):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, argument],
            cwd=CHECKOUT,
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    assert done.returncode == status
    assert done.stderr == b""


def test_every_problem_of_the_configuration_is_in_the_document_and_a_hundred_are_lines(capsys):
    problems = [
        ConfigError("config.unknown_key", "unknown key", where="x.yaml:1", hint="did you mean b?"),
        *(ConfigError("config.invalid_value", f"{number}") for number in range(999)),
    ]
    assert run(raising(ProblemsError(problems)), json=True) == 2
    told = capsys.readouterr()
    *lines, last = told.err.splitlines()
    assert lines == [f"error[{each.code}]: {each}" for each in problems[:100]]
    assert last == "and 900 more (--json lists them)"
    document = json.loads(told.out)
    assert document["error"]["message"] == "unknown key (and 999 more)"
    keys = ("code", "message", "where", "hint")
    assert document["problems"] == [{key: getattr(p, key) for key in keys} for p in problems]
