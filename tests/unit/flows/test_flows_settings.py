"""An invalid setting of Prefect is reported with its variable, but without its value."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CANARY = "CANARY0987654321"
TIMEOUT = "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"
HEADERS = "PREFECT_CLIENT_CUSTOM_HEADERS"
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
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    environment = {**kept, "PREFECT_HOME": str(home), **environment}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


@pytest.mark.push
@pytest.mark.parametrize(
    ("settings", "profiles", "where"),
    [
        ({TIMEOUT: CANARY}, "", TIMEOUT),
        ({HEADERS: f'{{"{CANARY}": ["{CANARY}"]}}'}, "", HEADERS),
        ({HEADERS: f'{{"{CANARY}'}, "", "CUSTOM_HEADERS"),
        ({}, f"broken = [{CANARY}", ""),
        ({}, f'active = "x"\nprofiles = {{x = "{CANARY}"}}', ""),
    ],
)
def test_a_wrong_setting_is_named_and_not_shown(tmp_path, settings, profiles, where):
    if profiles:
        (tmp_path / "profiles.toml").write_text(profiles)
    done = run(LOAD, tmp_path, **settings)
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"config.invalid_value {where}")
    assert CANARY not in line + done.stderr
