"""The command ``larder``: which subcommand is called, and what is refused."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from larder.cli.main import COMMANDS, Entry, dispatch
from larder.errors import ConfigError
from tests.support.errors import larder_error

ROOT = Path(__file__).parents[3]


def larder_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "larder.cli.main", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_first_argument_chooses_the_module_and_the_others_go_there(monkeypatch):
    called = []

    def main(arguments: Sequence[str], prog: str) -> int:
        called.append((list(arguments), prog))
        return 3

    monkeypatch.setattr(sys.modules[__name__], "main", main, raising=False)
    monkeypatch.setitem(COMMANDS, "x", Entry(__name__, "does x"))
    assert dispatch(["x", "--json", "prepare"]) == 3
    assert called == [(["--json", "prepare"], "larder x")]


@pytest.mark.parametrize("arguments", [[], ["--"], ["prepar", "--json"], ["--json"]])
def test_an_unknown_command_is_refused(arguments):
    with larder_error("config.invalid_flag"):
        dispatch(arguments)


def test_help_lists_every_command():
    done = larder_command("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name, command in COMMANDS.items():
        assert f"  {name:<9}{command.summary}\n" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_flags_that_it_does_not_have(name):
    of_larder = [] if name == "verify" else ["--version"]
    for flag in ("--no-such", "--jso", "--versio", *of_larder):
        with pytest.raises(ConfigError) as caught:
            dispatch([name, "--json", flag, "0123456789abcdef"])
        assert (caught.value.code, caught.value.exit_status) == ("config.invalid_flag", 2)


def test_help_and_version_load_nothing_heavy():
    for arguments in (["--version"], ["prepare", "--help"], ["init", "--help"]):
        script = f"""
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv[1:] = {arguments}
from larder.cli.main import main
sys.exit(main())
"""
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
        )
        modules = set(done.stderr.split())
        assert "larder.cli.exit" in modules
        heavy = {"prefect", "pyarrow", "botocore", "pycurl", "pydantic", "yaml", "numpy", "rich"}
        assert modules.isdisjoint(heavy)
