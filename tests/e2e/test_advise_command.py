"""``larder advise``: every delivery, of what is published or planned."""

import json

import pytest

from larder.errors import ConfigError
from larder.pipeline.settings import load_settings
from tests.support.commands import CHECKOUT, Workplace

LARDER = ("-m", "larder.cli.main")
ADVISE = (*LARDER, "advise")
FILES = ("--dataset", "files", "--set", "mirror=false")
SOURCE = {"LARDER_SOURCE": "source"}


@pytest.fixture
def place(tmp_path) -> Workplace:
    (tmp_path / "source").mkdir()
    for number in range(5):
        (tmp_path / f"source/{number}.bin").write_bytes(b"%d" % number)
    return Workplace(tmp_path, LARDER_SOURCE=str(tmp_path / "source"))


def files(place: Workplace) -> dict:
    """All but the temporary directory, whose time changes."""
    return {path: state for path, state in place.files().items() if path != "tmp"}


def advised(place: Workplace, *arguments: str, **environ: str) -> dict:
    done = place.run(*FILES, *arguments, "--json", python=ADVISE, **environ)
    assert done.status == 0, done.err
    return json.loads(done.out)


def test_the_facts_are_planned_until_there_is_a_version(place):
    before = files(place)
    planned = advised(place)
    assert files(place) == before
    prepare = (*LARDER, "prepare")
    plan = place.run(*FILES, "--plan", "--json", python=prepare)
    assert planned["delivery"] == json.loads(plan.out)["delivery"]
    assert place.run(*FILES, "--quiet", python=prepare).status == 0
    before = files(place)
    published = advised(place, LARDER_SOURCE="")
    assert files(place) == before
    assert (planned["status"], published["status"]) == ("planned", "published")
    assert planned["version"] == published["version"]
    assert planned["delivery"] == published["delivery"]
    (chosen,) = (
        option
        for option in published["delivery"]["options"]
        if option["delivery"] == published["delivery"]["kind"]
    )
    assert chosen["possible"]
    assert chosen["rules"][0]["sentence"] == published["delivery"]["reason"]
    # One that is refused can be looked up.
    lines = place.run(*FILES, "--set", "experiment.delivery=bucket", python=ADVISE).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[1] for line in lines if line.startswith("  bucket")] == ["no", "-"]


@pytest.mark.parametrize(
    "wish",
    [
        "experiment.delivery=buckett",
        "experiment.epochs=0",
        "experiment.epochs=true",
        "experiment.trials=1.5",
        "experiment.context_bytes=-1",
        "cluster.nodes.count=0",
        "cluster.consumer.limits.small_bytes=true",
        "cluster.consumer.limits.download_fraction=2",
        "cluster.consumer.limits.tiny_bytes=1",
    ],
)
def test_wishes_that_make_no_sense_are_refused(wish):
    with pytest.raises(ConfigError):
        load_settings("files", config_dir=CHECKOUT / "configs", settings=[wish], environ=SOURCE)
