"""What `pip install larder-data` gives: the command ``larder`` from the wheel, alone and light."""

import email
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from pipeline_lab import png

import larder
from larder.cli.init_command import EXAMPLES
from larder.packages import EXTRAS
from larder.store import open_store

pytestmark = pytest.mark.push

ROOT = Path(__file__).parents[2]
SITE = Path(np.__file__).parents[1]
LIGHT = ("google_crc32c", "lmdb", "numpy", "pycurl", "botocore")
OF_BOTOCORE = ("dateutil", "jmespath", "six", "urllib3")
PREPARE = sorted(set(EXTRAS["prepare"].values()))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "larder", source / "larder", symlinks=True, ignore=ignore)
    shutil.copytree(ROOT / "configs", source / "configs")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    (source / "configs/datasets/pets.yaml").write_text("source: {url: ./private}")  # a user's own
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*command, str(folder), str(source)], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def installed(folder: Path, wheel: Path, packages: tuple[str, ...] | None) -> Path:
    """A real virtual environment with the wheel, and packages of the one that runs the tests."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install"]
    command = [*pip, "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    if packages is None:
        (site / "others.pth").write_text(f"{SITE}\n")
    else:
        for name in packages:
            for found in SITE.glob(f"{name}*"):
                (site / found.name).symlink_to(found)
    return folder


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    return installed(tmp_path_factory.mktemp("light") / "venv", wheel, LIGHT + OF_BOTOCORE)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    return installed(tmp_path_factory.mktemp("full") / "venv", wheel, None)


def run(place: Path, cwd: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [str(place / "bin" / program), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_is_larder_alone_and_light(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        fields = email.message_from_bytes(archive.read(metadata))
        programs = archive.read(metadata.replace("METADATA", "entry_points.txt")).decode()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"larder"}
    assert {"larder/py.typed", "larder/demo/digits.txt.gz"} <= set(names)
    inside = "larder/cli/examples/"
    shipped = sorted(name.removeprefix(inside) for name in names if name.startswith(inside))
    assert shipped == list(EXAMPLES), "and no file that a user put beside them"
    assert fields["Name"] == "larder-data"  # "larder" is somebody else's on the package index
    assert fields["License-Expression"] == "Apache-2.0 AND CC-BY-4.0"
    assert any(name.endswith("licenses/larder/demo/digits-LICENSE.txt") for name in names)
    assert programs == "[console_scripts]\nlarder = larder.cli.main:main\n"
    required = fields.get_all("Requires-Dist") or []
    always = {re.split("[<>;]", line)[0] for line in required if "extra ==" not in line}
    assert always == {"botocore", "google-crc32c", "lmdb", "numpy", "pycurl"}
    assert not any("prefect" in line and '"prepare"' in line for line in required)


def test_help_version_and_init_work_in_a_light_install(light, tmp_path):
    assert run(light, tmp_path, "larder", "--version").stdout == f"larder {larder.__version__}\n"
    for arguments in (["--help"], ["prepare", "--help"]):
        done = run(light, tmp_path, "larder", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("usage: larder ")
    done = run(light, tmp_path, "larder", "init", "here")
    assert (done.returncode, done.stderr) == (0, "")
    for path in (ROOT / "configs").rglob("*.*"):
        written = tmp_path / "here/configs" / path.relative_to(ROOT / "configs")
        assert written.read_bytes() == path.read_bytes()


def test_preparing_in_a_light_install_names_what_is_missing(light, tmp_path):
    run(light, tmp_path, "larder", "init")
    done = run(light, tmp_path, "larder", "prepare", "--dataset", "files", "--json")
    missing = f"this needs packages that are not installed: {', '.join(PREPARE)}"
    command = "in a checkout of Larder: pip install '.[prepare]'"
    assert done.returncode == 2
    assert done.stderr == f"error[config.missing_package]: {missing}; {command}\n"
    script = """
import larder
from larder.errors import ConfigError
try:
    larder.prepare("files")
except ConfigError as error:
    print(error.code, error.hint)
"""
    done = run(light, tmp_path, "python", "-c", script)
    assert (done.stdout, done.stderr) == (f"config.missing_package {command}\n", "")


COMMAND = re.compile(r"^#   ((?:[A-Z_]+=\S+ )*(?:larder|python|export|tail) .+)$", re.MULTILINE)
PICTURE = "n01440764_10026.JPEG"
VALIDATION = "ILSVRC2012_val_00000001"


def test_every_command_of_the_examples_runs_as_written(full, tmp_path, s3_env):
    """From the wheel alone, in the folder in which they were written, one block after another."""
    (tmp_path / "my-directory").mkdir()
    (tmp_path / "my-directory/1.txt").write_text("1")
    (tmp_path / "LOC_val_solution.csv").write_text(
        f"ImageId,PredictionString\n{VALIDATION},n01440764 1 2 3 4\n"
    )
    s3_env.create_bucket("bucket")
    store = open_store("s3://bucket/prefix")
    objects = {f"train/n01440764/{PICTURE}": png(1), f"val/{VALIDATION}.JPEG": png(2)}
    for key, data in {**objects, "val.txt": f"{VALIDATION}.JPEG n01440764\n".encode()}.items():
        store.put(key, data)
    assert run(full, tmp_path, "larder", "init").returncode == 0
    where = run(full, tmp_path, "python", "-c", "import larder; print(larder.__file__)").stdout
    assert Path(where.strip()).is_relative_to(full)
    ran = set[str]()
    for path in sorted((tmp_path / "configs").rglob("*.yaml")):
        text = path.read_text()
        assert not re.search(r"docs/|flows|`make|\.md\b", text), path
        lines = COMMAND.findall(text)
        script = "\n".join(["set -eu", f"export PATH={full}/bin:$PATH", *lines])
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (path, done.stderr)
        ran |= {line.split()[0] for line in lines}
    assert ran == {"export", "larder", "LARDER_SOURCE=s3://bucket/prefix", "python", "tail"}
    assert (tmp_path / "val.txt").read_text() == f"{VALIDATION}.JPEG n01440764\n"
