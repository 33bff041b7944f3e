"""``larder emit``: the config of a version that is published."""

import shutil

import pytest

from tests.support.commands import Workplace

pytestmark = pytest.mark.push

LARDER = ("-m", "larder.cli.main")
PREPARE = (*LARDER, "prepare")
EMIT = (*LARDER, "emit")
FILES = ("--set", "mirror=false")


@pytest.fixture
def place(small: Workplace) -> Workplace:
    done = small.run("--dataset", "files", *FILES, "--quiet", python=PREPARE)
    assert done.status == 0, done.err
    return small


def emitted(place: Workplace, *arguments: str) -> dict:
    done = place.run(*arguments, "--json", python=EMIT, LARDER_SOURCE="")
    assert done.status == 0, done.err
    return done.document


def but_leases(place: Workplace) -> dict[str, tuple[int, int]]:
    """The lease of a config begins anew."""
    return {path: facts for path, facts in place.files().items() if "/leases" not in path}


def test_the_config_is_that_of_the_run(place):
    path = place.folder / "out/local/files/experiment.yaml"
    of_run = path.read_bytes()
    before = but_leases(place)
    unchanged = emitted(place, "files")
    assert unchanged["configs"] == [{"path": str(path), "changed": False}]
    assert but_leases(place) == before
    shutil.rmtree(place.folder / "out")
    again = emitted(place, "files@latest")
    assert again["configs"] == [{"path": str(path), "changed": True}]
    assert path.read_bytes() == of_run
    elsewhere = emitted(place, f"files@{again['version']}", "--output", "elsewhere")
    assert (place.folder / "elsewhere/experiment.yaml").read_bytes() == of_run
    assert elsewhere["version"] == unchanged["version"] == again["version"]


def test_what_is_not_published_is_refused(place):
    before = place.files()
    for name in ("files@" + "0" * 32, "files@best", "files@../x"):
        done = place.run(name, python=EMIT)
        assert (done.status, done.out) == (2, "")
        assert done.err.startswith("error[version.missing]: "), done.err
        assert len(done.err.splitlines()) == 1
        assert place.files() == before


def test_damage_is_not_emitted(place):
    version = emitted(place, "files")["version"]
    root = place.storage / "larder/files"
    (segment,) = root.glob("segments/*/segment.json")
    segment.rename(segment.with_suffix(".away"))
    done = place.run("files", python=EMIT)
    assert (done.status, "error[damage.size]: " in done.err) == (4, True)
    segment.with_suffix(".away").rename(segment)
    (root / f"versions/{version}/version.json").unlink()
    done = place.run("files", python=EMIT)
    assert (done.status, "error[damage.manifest]: " in done.err) == (4, True)


@pytest.mark.push
def test_what_the_template_sets_is_replaced_if_that_is_forced(place):
    template = place.folder / "configs/experiments/default.yaml"
    template.write_text(template.read_text() + "data: {path: /mnt/old, crop: 224} # mine\n")
    config = place.folder / "out/local/files/experiment.yaml"
    before = config.read_bytes()
    assert place.run("files", python=EMIT).status == 2
    assert config.read_bytes() == before
    done = place.run("files", "--force", python=EMIT)
    assert f"  submit   det experiment create {config} MODEL_DIR\n" in done.out, done.err
    assert "  replaced data.path" in done.out
    text = config.read_text()
    assert "/mnt/old" not in text
    assert "crop: 224" in text
    assert "# mine" in text
