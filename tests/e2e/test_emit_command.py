"""``larder emit``: the config of a version that is published."""

import json
import shutil

import pytest

from larder.cli.main import dispatch
from tests.support.commands import Workplace
from tests.support.errors import larder_error

pytestmark = pytest.mark.push


@pytest.fixture
def place(
    small: Workplace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Workplace:
    """This process is where a version of ``files`` was prepared; its source is out of reach."""
    monkeypatch.chdir(small.folder)
    monkeypatch.setenv("LARDER_SOURCE", str(small.folder / "source"))
    assert dispatch(["prepare", "--dataset", "files", "--set", "mirror=false", "--quiet"]) == 0
    monkeypatch.setenv("LARDER_SOURCE", "")
    capsys.readouterr()
    return small


def but_leases(place: Workplace) -> dict[str, tuple[int, int]]:
    """The lease of a config begins anew."""
    return {path: facts for path, facts in place.files().items() if "/leases" not in path}


def test_the_config_is_that_of_the_run(place, capsys):
    def emitted(*arguments: str) -> dict:
        assert dispatch(["emit", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    path = place.folder / "out/local/files/experiment.yaml"
    of_run = path.read_bytes()
    before = but_leases(place)
    unchanged = emitted("files")
    assert unchanged["configs"] == [{"path": str(path), "changed": False}]
    assert but_leases(place) == before
    shutil.rmtree(place.folder / "out")
    again = emitted("files@latest")
    assert again["configs"] == [{"path": str(path), "changed": True}]
    assert path.read_bytes() == of_run
    elsewhere = emitted(f"files@{again['version']}", "--output", "elsewhere")
    assert (place.folder / "elsewhere/experiment.yaml").read_bytes() == of_run
    assert elsewhere["version"] == unchanged["version"] == again["version"]


def test_what_is_not_published_or_damaged_is_refused(place):
    before = place.files()
    for name in ("files@" + "0" * 32, "files@best", "files@../x"):
        with larder_error("version.missing"):
            dispatch(["emit", name])
    assert place.files() == before
    root = place.storage / "larder/files"
    (segment,) = root.glob("segments/*/segment.json")
    segment.rename(segment.with_suffix(".away"))
    with larder_error("damage.size"):
        dispatch(["emit", "files"])
    segment.with_suffix(".away").rename(segment)
    (version,) = root.glob("versions/*/version.json")
    version.unlink()
    with larder_error("damage.manifest"):
        dispatch(["emit", "files"])


def test_what_the_template_sets_is_replaced_if_that_is_forced(place, capsys):
    template = place.folder / "configs/experiments/default.yaml"
    template.write_text(template.read_text() + "data: {path: /mnt/old, crop: 224} # mine\n")
    config = place.folder / "out/local/files/experiment.yaml"
    before = config.read_bytes()
    with larder_error("config.template"):
        dispatch(["emit", "files"])
    assert config.read_bytes() == before
    assert dispatch(["emit", "files", "--force"]) == 0
    shown = capsys.readouterr().out
    assert f"  submit   det experiment create {config} MODEL_DIR\n" in shown
    assert "  replaced data.path" in shown
    text = config.read_text()
    assert "/mnt/old" not in text
    assert "crop: 224" in text
    assert "# mine" in text
