"""What tests need of the machine: where it is missing they are skipped, or fail as in CI."""

from __future__ import annotations

import gc
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

_ROOT = Path(__file__).parents[1]
_READERS = _ROOT / ".venv-readers"
_NOT_SET_UP = "the readers of other projects are not set up (`make readers-test` does that)"
_NOT_ROOT = "needs root, or sudo without a password"


def all_required() -> bool:
    """Whether LARDER_REQUIRE=all asks for every test, as in CI."""
    return os.environ.get("LARDER_REQUIRE") == "all"


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it if everything is required."""
    if all_required():
        pytest.fail(reason)
    pytest.skip(reason)


def need_system(installed: bool, hint: str) -> None:
    """Skip a test of another system, unless everything is required: then it must be installed."""
    if not all_required():
        pytest.skip("needs another system; set LARDER_REQUIRE=all to run it, as in CI")
    if not installed:
        pytest.fail(hint)


def read_by_others(program: str, given: Any) -> Any:
    """What a program prints as JSON that imports TensorFlow, Hugging Face datasets or wids.

    It runs in ``.venv-readers``, without Larder. Starting one takes seconds: read all in one.

    Args:
        program: Reads ``given`` as JSON from stdin; only its last line of stdout counts.
        given: What to read.
    """
    return _run_in_readers(["-c", program], given)


def read_with_frameworks(module: str, given: Any) -> Any:
    """What a module of tests/frameworks prints as JSON, which feeds a framework with Larder.

    It runs in ``.venv-readers``, with the checkout on its path; as `read_by_others` otherwise.
    """
    return _run_in_readers(["-m", f"tests.frameworks.{module}"], given, PYTHONPATH=str(_ROOT))


def _run_in_readers(arguments: list[str], given: Any, **variables: str) -> Any:
    need_system((_READERS / "app").is_file(), _NOT_SET_UP)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [_READERS / "bin/python", *arguments],
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**kept, **variables, "CUDA_VISIBLE_DEVICES": "-1", "HF_HUB_OFFLINE": "1"},
    )
    return json.loads(done.stdout.splitlines()[-1])


def as_root() -> list[str]:
    """What to put before a command that only root may run."""
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "--non-interactive"]
    try:
        subprocess.run([*sudo, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        missing(_NOT_ROOT)
    return sudo


@contextmanager
def disk_of(size: str, place: Path) -> Iterator[Path]:
    """A file system of a size, such as ``8m``, in a new directory."""
    place.mkdir()
    root = as_root()
    options = f"size={size},uid={os.geteuid()}"
    command = [*root, "mount", "-t", "tmpfs", "-o", options, "none", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield place
    finally:
        gc.collect()  # an error may hold what it passed through
        subprocess.run([*root, "umount", "--lazy", str(place)], check=True)
