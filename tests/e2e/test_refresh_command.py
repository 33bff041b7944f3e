"""``larder refresh`` and ``python -m flows.refresh``: what changed is prepared."""

from pathlib import Path

import pytest
from test_copy_command import artifacts

from tests.support.commands import Workplace

LARDER = ("-m", "larder.cli.main")
REFRESH = (*LARDER, "refresh")
FLOW = ("-m", "flows.refresh")


@pytest.fixture
def place(tmp_path) -> Workplace:
    place = Workplace(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.bin").write_bytes(name.encode())
        text = f"source: {{url: {tmp_path / name}}}\nmirror: false\nlabels: null\n"
        (tmp_path / f"configs/datasets/{name}.yaml").write_text(text)
    return place


def stored(place: Workplace) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in place.storage.rglob("*")}


@pytest.mark.push
def test_only_what_changed_is_prepared(place):
    """Each with progress and warnings of its own."""
    done = place.run("a", "b", "--json", python=REFRESH)
    assert done.err.count("warning[few_shards]: ") == 2
    for number, run in enumerate(done.document["datasets"]):
        assert run["stages"]["inventory"]["objects"] == run["stages"]["shard"]["objects"] == 1
        assert f"dataset {number + 1} of 2: {run['dataset']}" in done.err
    (place.folder / "b/2.bin").write_bytes(b"new")
    lines = place.run("a", "b", python=REFRESH).out.splitlines()
    assert lines[0].startswith("a reused: version ")
    assert lines[1].startswith("b built: version ")
    assert any("experiment.yaml" in line for line in lines)
    before = stored(place)
    again = place.run("a", "b", "--json", python=REFRESH).document["datasets"]
    assert [run["status"] for run in again] == ["reused", "reused"]
    assert stored(place) == before


@pytest.mark.push
def test_one_that_fails_stops_no_other_and_is_named(place):
    (place.folder / "configs/datasets/a.yaml").write_text("source: {url: ./nowhere}\n")
    done = place.run("a", "b", "no-such", python=REFRESH)
    assert done.status == 1
    assert "2 failed in refresh" in done.err
    assert "b built: version " in done.out
    assert "the others are current" in done.err
    assert "Traceback" not in done.err
    assert (place.storage / "larder/b/tags/latest.json").exists()
    assert not (place.storage / "larder/a/tags/latest.json").exists()
    again = place.run("a", "b", "--json", python=REFRESH).document
    assert [each["status"] for each in again["datasets"]] == ["reused"]
    assert (again["failed"], again["error"]["code"]) == (1, "run.failed")


@pytest.mark.push
def test_its_page_in_prefect_has_a_line_for_each_dataset(place, prefect_server):
    url = f"http://127.0.0.1:{prefect_server.port}/api"
    done = place.run("a", "b", python=FLOW, PREFECT_API_URL=url)
    assert done.status == 0, done.err
    (run,) = prefect_server.flow_runs("refresh for local")
    assert run["state_type"] == "COMPLETED"
    (summary,) = [each for each in artifacts(prefect_server, run) if each["key"] == "refresh"]
    assert "a built: version " in summary["data"]
    assert "b built: version " in summary["data"]

    (place.folder / "configs/datasets/a.yaml").write_text("source: {url: ./nowhere}\n")
    failed = place.run("a", "b", python=FLOW, PREFECT_API_URL=url)
    assert failed.status == 1
    assert "b reused: version " in failed.out
    _, run = prefect_server.flow_runs("refresh for local")
    assert run["state_type"] == "FAILED"
    shown = {each["key"]: each for each in artifacts(prefect_server, run)}
    assert "b reused: version " in shown["refresh"]["data"]
    assert {"error", "failures"} <= shown.keys()
