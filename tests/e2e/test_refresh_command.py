"""``larder refresh`` and ``python -m flows.refresh``: what changed is prepared."""

import json
from pathlib import Path

import pytest
from test_copy_command import artifacts

from larder.cli.main import dispatch
from larder.jobs.results import RunError
from tests.support.commands import Workplace

pytestmark = pytest.mark.push

FLOW = ("-m", "flows.refresh")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    place = Workplace(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.bin").write_bytes(name.encode())
        text = f"source: {{url: {tmp_path / name}}}\nmirror: false\nlabels: null\n"
        (tmp_path / f"configs/datasets/{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return place


def stored(place: Workplace) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in place.storage.rglob("*")}


def test_only_what_changed_is_prepared(place, capsys):
    """Each with progress and warnings of its own."""
    assert dispatch(["refresh", "a", "b", "--json"]) == 0
    told = capsys.readouterr()
    assert told.err.count("warning[few_shards]: ") == 2
    for number, run in enumerate(json.loads(told.out)["datasets"]):
        assert run["stages"]["inventory"]["objects"] == run["stages"]["shard"]["objects"] == 1
        assert f"dataset {number + 1} of 2: {run['dataset']}" in told.err
    (place.folder / "b/2.bin").write_bytes(b"new")
    assert dispatch(["refresh", "a", "b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("a reused: version ")
    assert lines[1].startswith("b built: version ")
    assert any("experiment.yaml" in line for line in lines)
    before = stored(place)
    assert dispatch(["refresh", "a", "b", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["datasets"]
    assert [run["status"] for run in again] == ["reused", "reused"]
    assert stored(place) == before


def test_one_that_fails_stops_no_other_and_is_named(place, capsys):
    (place.folder / "configs/datasets/a.yaml").write_text("source: {url: ./nowhere}\n")
    with pytest.raises(RunError, match="2 failed in refresh") as caught:
        dispatch(["refresh", "a", "b", "no-such"])
    assert "the others are current" in str(caught.value)
    assert "b built: version " in capsys.readouterr().out
    assert (place.storage / "larder/b/tags/latest.json").exists()
    assert not (place.storage / "larder/a/tags/latest.json").exists()
    with pytest.raises(RunError, match="2 failed in refresh") as caught:
        dispatch(["refresh", "a", "no-such"])
    assert caught.value.hint == "fix these, then run again"


def test_its_page_in_prefect_has_a_line_for_each_dataset(place, prefect_server):
    done = place.run("a", "b", python=FLOW, PREFECT_API_URL=prefect_server.url)
    assert done.status == 0, done.err
    (run,) = prefect_server.flow_runs("refresh for local")
    assert run["state_type"] == "COMPLETED"
    (summary,) = [each for each in artifacts(prefect_server, run) if each["key"] == "refresh"]
    assert "a built: version " in summary["data"]
    assert "b built: version " in summary["data"]

    (place.folder / "configs/datasets/a.yaml").write_text("source: {url: ./nowhere}\n")
    failed = place.run("a", "b", "--json", python=FLOW, PREFECT_API_URL=prefect_server.url)
    document = failed.document
    assert [each["status"] for each in document["datasets"]] == ["reused"]
    assert (failed.status, document["failed"], document["error"]["code"]) == (1, 1, "run.failed")
    assert "Traceback" not in failed.err
    _, run = prefect_server.flow_runs("refresh for local")
    assert run["state_type"] == "FAILED"
    shown = {each["key"]: each for each in artifacts(prefect_server, run)}
    assert "b reused: version " in shown["refresh"]["data"]
    assert {"error", "failures"} <= shown.keys()
