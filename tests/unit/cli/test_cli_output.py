"""What is written to stdout and stderr, and what happens if that fails."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from required import at_push

from larder.cli.output import print_json, print_text, tell

ROOT = Path(__file__).parents[3]
PRELUDE = """
import sys
from larder.cli.signals import arm
arm()
from larder.cli.exit import run
from larder.cli.main import dispatch
from larder.cli.output import print_json, print_text
from larder.errors import DamageError
def damage(): raise DamageError("damage.digest", "torn")
sys.exit(run(lambda: {} or 0))
"""
PRINTS = {
    "json": 'print_json({"key": "value"})',
    "text": 'print_text("text")',
    "long": 'print_text("x" * 1_000_000)',
    "help": 'dispatch(["verify", "--help"])',
}


def shell(redirect: str, what: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PRELUDE.format(what), *arguments]
    return subprocess.run(
        ["/bin/sh", "-c", f'"$@" {redirect}', "sh", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("what", "redirect", "reason"),
    [
        *((what, ">/dev/full", "No space left on device") for what in PRINTS),
        ("json", "1</dev/null", "Bad file descriptor"),
    ],
)
def test_stdout_that_cannot_be_written_is_one_line(what, redirect, reason):
    done = shell(redirect, PRINTS[what], "--json")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error[run.output]: cannot write to stdout: {reason}")


def test_an_error_keeps_its_line_and_status_if_its_document_is_lost():
    done = shell(">&-", "damage()", "--json")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "error[damage.digest]: torn\n"


@pytest.mark.parametrize("redirect", ["2>/dev/full", *at_push("2>&-")])
def test_stderr_that_cannot_be_written_changes_nothing(redirect):
    done = shell(redirect, "damage()", "--json")
    assert (done.returncode, done.stderr) == (4, "")
    assert json.loads(done.stdout)["error"]["code"] == "damage.digest"
    assert shell(redirect, PRINTS["text"]).stdout == "text\n"


def test_nothing_is_left_to_write_to():
    done = shell(">&- 2>&- <&-", PRINTS["json"], "--json")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_characters_outside_the_encoding_are_escaped(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    value = {"key": "übung \udcff"}
    done = shell("", f"print_json({value!r})")
    assert (done.returncode, json.loads(done.stdout)) == (0, value)
    assert shell("", f"print_text({value['key']!r})").stdout == "\\xfcbung \\udcff\n"


def test_nothing_that_is_printed_reaches_the_terminal_as_a_control(capsys):
    print_text("one \x1b[31mred\ntwo \u202eturned")
    tell("three \x9b31m\n  four\r")
    captured = capsys.readouterr()
    assert captured.out == "one \\x1b[31mred\ntwo \\u202eturned\n"
    assert captured.err == "three \\x9b31m\n  four\\r\n"
    print_json({"key": "a\x9b\u202eb\x1b\nübung"})
    out = capsys.readouterr().out
    assert json.loads(out) == {"key": "a\x9b\u202eb\x1b\nübung"}
    assert not {"\x9b", "\u202e", "\x1b"} & set(out)


@pytest.mark.push
@pytest.mark.parametrize("json_flag", [(), ("--json",)])
def test_a_plan_that_cannot_be_printed_does_not_claim_to_have_done_work(tmp_path, json_flag):
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.txt").write_text("a")
    where = [f"--set=source.url={tmp_path}/source", f"--set=cluster.storage.url={tmp_path}/local"]
    asked = ["prepare", "--plan", "--quiet", "--dataset=files", *where, *json_flag]
    full = shell(">/dev/full", "dispatch(sys.argv[1:])", *asked)
    assert full.returncode == 1
    assert full.stderr.endswith(
        "cannot write to stdout: No space left on device; make room, or redirect the output\n"
    )
