"""What users install: the wheel contains only larder, and has few requirements."""

import email
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from larder.cli.init import EXAMPLES

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[2]
LIGHT = {"botocore", "google-crc32c", "lmdb", "numpy", "pycurl"}


def checked_out(folder: Path) -> Path:
    """A copy of what is installed."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "larder", folder / "larder", ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def test_the_wheel_is_larder_alone_and_light(tmp_path):
    source = checked_out(tmp_path / "source")
    (source / "larder/cli/examples/datasets/pets.yaml").write_text("source: {url: ./private}")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*command, str(tmp_path), str(source)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        fields = email.message_from_bytes(archive.read(metadata))
        programs = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"larder"}
    assert "larder/py.typed" in names
    assert "larder/demo/digits.txt.gz" in names
    inside = "larder/cli/examples/"
    shipped = sorted(name.removeprefix(inside) for name in names if name.startswith(inside))
    assert shipped == list(EXAMPLES), "and no file that a user put beside them"
    assert fields["Name"] == "larder-data"  # "larder" is somebody else's on the package index
    assert fields["License-Expression"] == "Apache-2.0 AND CC-BY-4.0"
    assert any(name.endswith("licenses/larder/demo/digits-LICENSE.txt") for name in names)
    assert programs == "[console_scripts]\nlarder = larder.cli.main:main\n"
    required = fields.get_all("Requires-Dist") or []
    always = {line.split(";")[0] for line in required if "extra ==" not in line}
    assert {line.split(">")[0].split("<")[0].strip() for line in always} == LIGHT
    extras = set(fields.get_all("Provides-Extra") or [])
    assert extras == {"prepare", "flows", "gcs", "demo", "tensorflow", "torch", "dask", "ray"}
    for extra, package in (("prepare", "pyarrow"), ("flows", "prefect"), ("gcs", "gcsfs")):
        assert any(line.startswith(package) and extra in line for line in required)
    assert not any("prefect" in line and '"prepare"' in line for line in required)


def test_an_editable_install_is_found_in_the_folder_that_holds_the_checkout(tmp_path):
    """There, ``larder`` is also a folder without code, which Python takes if it finds no other."""
    checkout = checked_out(tmp_path / "larder")
    (line,) = re.findall(r"--editable \. *(.*)", (ROOT / "Makefile").read_text())
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *line.split()]
    command += ["--ignore-installed", "--prefix", str(tmp_path / "there")]
    done = subprocess.run([*command, "--editable", str(checkout)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (pth,) = (tmp_path / "there").rglob("*.pth")
    code = (
        f"import site; site.addsitedir({str(pth.parent)!r}); import larder; print(larder.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(checkout / "larder/__init__.py"), done.stderr
