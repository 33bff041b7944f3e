"""``larder advise``: every delivery, of what is published or planned."""

import json

import pytest

from larder.cli.main import dispatch
from larder.errors import ConfigError
from larder.pipeline.settings import load_settings
from tests.support.commands import CHECKOUT

FILES = ("--dataset", "files", "--set", "mirror=false")


def test_the_facts_are_planned_until_there_is_a_version(small, monkeypatch, capsys):
    def document(*arguments: str) -> dict:
        assert dispatch([*arguments, *FILES, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    monkeypatch.chdir(small.folder)
    monkeypatch.setenv("LARDER_SOURCE", "source")
    before = small.files()
    planned = document("advise")
    assert small.files() == before
    assert planned["delivery"] == document("prepare", "--plan")["delivery"]
    document("prepare")
    before = small.files()
    monkeypatch.setenv("LARDER_SOURCE", "")
    published = document("advise")
    assert small.files() == before
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
    assert dispatch(["advise", *FILES, "--set", "experiment.delivery=bucket"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[1] for line in lines if line.startswith("  bucket")] == ["no", "-"]


def test_a_wrong_report_is_refused_in_one_line(small):
    """What DuckDB has not let go of would be complained of in 47 more."""
    report = small.folder / "report.csv"
    report.write_text("key,size\na.txt,2\na.txt,3\n")
    asked = ("advise", *FILES, "--set", f"source.inventory.url={report}")
    done = small.run(*asked, python=("-m", "larder.cli.main"))
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
        load_settings(
            "files",
            config_dir=CHECKOUT / "configs",
            settings=[wish],
            environ={"LARDER_SOURCE": "x"},
        )
