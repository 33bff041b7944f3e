"""Read what ``make demo`` made with each Python, with the oldest and the newest packages allowed.

``python -m tests.support.every_python UV WHEEL PYTHON...``: everything is installed from wheels.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

from tests.support.processes import CHECKOUT
from tests.support.servers import rclone_s3

_SCRIPT = CHECKOUT / "tests/support/read_back.py"
_MADE = CHECKOUT / "data/local"
_RESOLUTIONS = ("lowest-direct", "highest")


def main(uv: str, wheel: str, *pythons: str) -> None:
    """Read the version from its directory and from a bucket."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copytree(_MADE, folder / "buckets/team")
        version, *_ = (path.name for path in (_MADE / "larder/digits/versions").iterdir())
        with rclone_s3(folder / "buckets") as server:
            environment = {**server.environment, "HOME": temporary, "PATH": os.environ["PATH"]}
            for number, (python, resolution) in enumerate(product(pythons, _RESOLUTIONS)):
                place = folder / str(number)
                _install(uv, wheel, python, resolution, place)
                environment["LARDER_CACHE"] = str(place / "cached")
                urls = f"{_MADE}/larder/digits@latest", f"s3://team/larder/digits@{version[:8]}"
                script: list[str | Path] = [place / "bin/python", "-I", _SCRIPT]
                subprocess.run([*script, *urls, place / "warm"], env=environment, check=True)


def _install(uv: str, wheel: str, python: str, resolution: str, place: Path) -> None:
    subprocess.run([uv, "venv", "--quiet", "--python", python, place], check=True)
    install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", place / "bin/python"]
    wheels = ["--only-binary", ":all:", "--resolution", resolution]
    requirements: list[str | Path] = ["--requirements", CHECKOUT / "pyproject.toml"]
    subprocess.run([*install, *wheels, *requirements], check=True)
    subprocess.run([*install, "--no-deps", wheel], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
