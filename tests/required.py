"""What tests need of the machine, and which of them run.

Without ``LARDER_REQUIRE``, tests of other systems, tests marked ``push`` or ``nightly`` and the
folder tests/concurrency are skipped. With ``all``, as at every push, only tests marked ``nightly``
are, and the machine must have every system. With ``nightly``, every case runs.
"""

import gc
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest

_ROOT = Path(__file__).parents[1]
_READERS = _ROOT / ".venv-readers"
_NOT_SET_UP = "the readers of other projects are not set up (`make readers-test` does that)"
_NOT_ROOT = "needs root, or sudo without a password"


def all_required() -> bool:
    """Whether the tests of a push run, and every system is required."""
    return os.environ.get("LARDER_REQUIRE") in ("all", "nightly")


def nightly() -> bool:
    """Whether every case of every test runs."""
    return os.environ.get("LARDER_REQUIRE") == "nightly"


def at_push(*cases: Any) -> list[Any]:
    """Mark cases of a test with ``push``; a tuple holds the values of one case."""
    return [_marked(case, pytest.mark.push) for case in cases]


def at_night(*cases: Any, but: Sequence[Any] = ()) -> list[Any]:
    """Mark cases of a test with ``nightly``, except those that ``but`` names."""
    return [_marked(case, *([] if case in but else [pytest.mark.nightly])) for case in cases]


def _marked(case: Any, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks)


@dataclass(frozen=True)
class Group:
    """Test files that run at a push only if a folder that they test, or a lock, has changed."""

    tests: tuple[str, ...]
    folders: tuple[str, ...]


GROUPS = (
    Group(
        (
            "tests/e2e/test_image.py",
            "tests/e2e/test_skyplane.py",
            "tests/integration/test_benchmarks.py",
            "tests/integration/test_image_records.py",
            "tests/integration/test_pipeline_images.py",
        ),
        ("benchmarks", "deployments/docker", "larder/copy/skyplane", "larder/shards/images"),
    ),
    Group(
        (
            "tests/e2e/test_browser.py",
            "tests/e2e/test_dataset_limits.py",
            "tests/e2e/test_deploying.py",
            "tests/e2e/test_interrupted_deploys.py",
            "tests/e2e/test_interrupted_runs.py",
            "tests/e2e/test_prefect_deployments.py",
            "tests/e2e/test_runners.py",
            "tests/e2e/test_serve.py",
            "tests/e2e/test_serving_pools.py",
            "tests/e2e/test_superseded_runs.py",
            "tests/integration/test_batch_processes.py",
        ),
        ("deployments", "flows/runs", "larder/jobs", "tasks"),
    ),
    Group(
        (
            "tests/integration/test_datalayer_tensorflow.py",
            "tests/integration/test_docs_streaming.py",
            "tests/integration/test_docs_training.py",
            "tests/integration/test_frameworks.py",
            "tests/integration/test_import_orders.py",
            "tests/integration/test_killed_training.py",
            "tests/integration/test_other_systems.py",
            "tests/integration/test_records_tensorflow.py",
            "tests/integration/test_slurm_jobs.py",
            "tests/integration/test_spawned_ranks.py",
        ),
        (
            "docs/how-to",
            "larder/datalayer",
            "larder/experiments",
            "larder/readers",
            "tests/frameworks",
        ),
    ),
)


@cache
def unchanged() -> frozenset[str]:
    """Test files of the groups whose folders are as before the push.

    ``LARDER_BEFORE`` names the commit before the push. Without it, every group runs.
    """
    before = os.environ.get("LARDER_BEFORE")
    if nightly() or not before:
        return frozenset()
    files: set[str] = set()
    for group in GROUPS:
        paths = ("requirements", *group.folders, *group.tests)
        command = ["git", "diff", "--quiet", before, "--", *paths]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, check=False)
        if done.returncode == 0:
            files.update(group.tests)
    return frozenset(files)


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
