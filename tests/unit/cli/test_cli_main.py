import pytest

from larder.cli.main import COMMANDS, dispatch
from larder.errors import ConfigError
from tests.support.errors import larder_error
from tests.support.processes import run_python


@pytest.mark.parametrize("arguments", [[], ["--"], ["prepar", "--json"], ["--json"]])
def test_an_unknown_command_is_refused(arguments):
    with larder_error("config.invalid_flag"):
        dispatch(arguments)


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as left:
        dispatch(["--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    for name, command in COMMANDS.items():
        assert f"  {name:<9}{command.summary}\n" in shown


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
        done = run_python("-c", script)
        modules = set(done.stderr.split())
        assert "larder.cli.exit" in modules
        heavy = {"prefect", "pyarrow", "botocore", "pycurl", "pydantic", "yaml", "numpy", "rich"}
        assert modules.isdisjoint(heavy)
