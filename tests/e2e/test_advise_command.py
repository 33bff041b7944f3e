"""``larder advise``: every delivery, of what is published or planned."""

import pytest

from larder.errors import ConfigError
from larder.pipeline.settings import load_settings
from tests.support.commands import CHECKOUT, Workplace

LARDER = ("-m", "larder.cli.main")
ADVISE = (*LARDER, "advise")
FILES = ("--dataset", "files", "--set", "mirror=false")
SOURCE = {"LARDER_SOURCE": "source"}


def files(place: Workplace) -> dict:
    """All but the temporary directory, whose time changes."""
    return {path: state for path, state in place.files().items() if path != "tmp"}


def advised(place: Workplace, *arguments: str, **environ: str) -> dict:
    done = place.run(*FILES, *arguments, "--json", python=ADVISE, **environ)
    assert done.status == 0, done.err
    return done.document


@pytest.mark.push
def test_the_facts_are_planned_until_there_is_a_version(small):
    before = files(small)
    planned = advised(small)
    assert files(small) == before
    prepare = (*LARDER, "prepare")
    plan = small.run(*FILES, "--plan", "--json", python=prepare)
    assert planned["delivery"] == plan.document["delivery"]
    assert small.run(*FILES, "--quiet", python=prepare).status == 0
    before = files(small)
    published = advised(small, LARDER_SOURCE="")
    assert files(small) == before
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
    lines = small.run(*FILES, "--set", "experiment.delivery=bucket", python=ADVISE).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[1] for line in lines if line.startswith("  bucket")] == ["no", "-"]


def test_a_wrong_report_is_refused_in_one_line(small):
    """What DuckDB has not let go of would be complained of in 47 more."""
    report = small.folder / "report.csv"
    report.write_text("key,size\na.txt,2\na.txt,3\n")
    done = small.run(*FILES, "--set", f"source.inventory.url={report}", python=ADVISE)
    assert done.status == 2
    assert len(done.err.splitlines()) == 1
    assert "duplicate key 'a.txt'" in done.err


@pytest.mark.parametrize(
    "wish",
    [
        "experiment.epochs=0",
        "experiment.context_bytes=-1",
        "cluster.nodes.count=0",
        "cluster.consumer.limits.download_fraction=2",
        "cluster.consumer.limits.tiny_bytes=1",
    ],
)
def test_wishes_that_make_no_sense_are_refused(wish):
    with pytest.raises(ConfigError):
        load_settings("files", config_dir=CHECKOUT / "configs", settings=[wish], environ=SOURCE)
