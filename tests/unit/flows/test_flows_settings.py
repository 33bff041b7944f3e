"""An invalid setting of Prefect is reported with its variable, but without its value."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CANARY = "CANARY0987654321"
LOAD = """
import traceback
from flows.runs.prefect_settings import load_prefect
from larder.errors import ConfigError
try:
    print(load_prefect())
except ConfigError as error:
    print(error.code, error)
    traceback.print_exc()
"""


def run(script: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**clean, "PREFECT_HOME": str(home), **environment},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )


def load(home: Path, **environment: str) -> tuple[list[str], str]:
    """The lines that say what is wrong, and all that was written to stderr."""
    done = run(LOAD, home, **environment)
    return done.stdout.splitlines(), done.stderr


@pytest.mark.push
@pytest.mark.parametrize(
    ("name", "value", "where"),
    [
        ("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", CANARY, None),
        ("PREFECT_CLIENT_CUSTOM_HEADERS", f'{{"{CANARY}": ["{CANARY}"]}}', None),
        ("PREFECT_CLIENT_CUSTOM_HEADERS", f'{{"{CANARY}', "CUSTOM_HEADERS"),
    ],
)
def test_a_wrong_setting_is_named_and_not_shown(tmp_path, name, value, where):
    (line,), err = load(tmp_path, **{name: value})
    assert line.startswith(f"config.invalid_value {where or name}: ")
    assert CANARY not in line + err


@pytest.mark.push
@pytest.mark.parametrize(("given", "seconds"), [("-5", 1.0), ("9" * 30, 86_400.0)])
def test_the_timeout_of_a_server_is_one_that_a_socket_accepts(tmp_path, given, seconds):
    script = "from flows.runs.prefect_settings import *; load_prefect(); print(startup_seconds())"
    done = run(script, tmp_path, PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS=given)
    assert float(done.stdout) == seconds


@pytest.mark.parametrize(
    "text", [f"broken = [{CANARY}", f'active = "x"\nprofiles = {{x = "{CANARY}"}}']
)
@pytest.mark.push
def test_profiles_that_cannot_be_read_are_wrong_input_too(tmp_path, text):
    (tmp_path / "profiles.toml").write_text(text)
    (line,), err = load(tmp_path)
    assert line.startswith("config.invalid_value ")
    assert CANARY not in line + err
