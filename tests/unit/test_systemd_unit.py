"""deployments/systemd: a unit that systemd accepts, of a command that exists."""

import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deployments/systemd/larder.service"


def test_the_unit_is_valid_and_starts_what_is_there(tmp_path):
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # keys of systemd have capitals
    unit.read(UNIT)
    service = unit["Service"]
    program, *words = service["ExecStart"].split()
    assert program == f"{service['WorkingDirectory']}/.venv/bin/python"
    assert words == ["-m", "flows.serve"]
    assert (ROOT / "flows/serve.py").is_file()
    assert service["KillSignal"] == "SIGINT"
    if systemd := shutil.which("systemd-analyze"):
        here = UNIT.read_text().replace(program, sys.executable)
        copy = tmp_path / UNIT.name
        copy.write_text(here.replace("User=larder\n", "").replace("/srv/larder", str(tmp_path)))
        done = subprocess.run(
            [systemd, "verify", copy], capture_output=True, text=True, check=False
        )
        assert UNIT.name not in done.stderr, done.stderr
