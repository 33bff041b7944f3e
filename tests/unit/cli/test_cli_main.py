import pytest

from larder.catalog.leasing import lease
from larder.cli.main import COMMANDS, dispatch
from larder.errors import ConfigError
from larder.versions.leases import MAX_DAYS
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


@pytest.mark.parametrize("command", ["ls", "du", "show", "diff", "lease"])
def test_an_empty_name_is_no_dataset(command):
    with larder_error("config.invalid_value") as caught:
        dispatch([command, ""])
    assert caught.value.where == "DATASET"


@pytest.mark.parametrize(
    "command",
    ["advise --dataset d", "card d", "clean d --keep 1", "copy a b", "ls", "refresh", "tag d t"],
)
def test_a_config_folder_with_credentials_is_refused_and_not_shown(command):
    with larder_error("config.secret") as caught:
        dispatch([*command.split(), "--config-dir", "s3://key:canary@bucket"])
    assert caught.value.where == "--config-dir"
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "flags",
    [
        {"version": "latest"},
        {"version": ""},
        {"holder": "bob"},
        {"version": "latest", "holder": "bob", "drop": ["x"]},
        {"version": "latest", "holder": "bob", "days": 0},
        {"version": "latest", "holder": "bob", "days": MAX_DAYS + 1},
    ],
)
def test_a_lease_that_is_half_described_is_refused(flags):
    with larder_error("config.invalid_flag"):
        lease(None, **flags)
