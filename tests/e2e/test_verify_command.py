"""``larder verify`` and ``python -m flows.verify``: damage, exit status, repair."""

import json
from pathlib import Path

import pytest
from test_copy_command import artifacts

from larder.cli.exit import run
from larder.cli.verify_command import VERIFY as COMMAND
from tests.support.commands import Workplace

LARDER = ("-m", "larder.cli.main")
PREPARE = (*LARDER, "prepare")
VERIFY = (*LARDER, "verify")
FLOW = ("-m", "flows.verify")
SMALL = ("--dataset", "imagenet", "--set", "shards.bytes=400 kB", "--set", "mirror=false")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Workplace:
    place = Workplace(tmp_path_factory.mktemp("prepared"), IMAGENET_SOURCE=str(source))
    done = place.run(*SMALL, "--quiet", python=PREPARE)
    assert done.status == 0, done.err
    return place


def shards(place: Workplace) -> list[Path]:
    return sorted(place.storage.rglob("*.tar"))


def flip(path: Path, place: int = 5_000) -> bytes:
    before = path.read_bytes()
    damaged = bytearray(before)
    damaged[place] ^= 4
    path.write_bytes(damaged)
    return before


@pytest.mark.push
def test_damage_is_named_with_status_4_and_repaired_with_status_0(prepared):
    done = prepared.run(*SMALL, python=VERIFY)
    assert done.status == 0, done.err
    assert ": intact, verified in " in done.out

    damaged, removed = shards(prepared)[:2]
    before, gone = flip(damaged), removed.read_bytes()
    removed.unlink()
    state = prepared.files()
    done = prepared.run(*SMALL, python=VERIFY, IMAGENET_SOURCE="")
    assert done.status == 4
    assert f"{damaged.name}: the bytes do not match the digest; 1 sample concerned: " in done.out
    assert f"{removed.name}: the file is missing; " in done.out
    assert done.err.splitlines()[-1].startswith("error[damage.")
    assert prepared.files().keys() == state.keys()

    done = prepared.run(*SMALL, "--repair", python=VERIFY)
    assert done.status == 0, done.err
    assert done.out.count("  repaired ") == 2
    assert (damaged.read_bytes(), removed.read_bytes()) == (before, gone)
    done = prepared.run(*SMALL, "--json", python=VERIFY)
    assert (done.status, done.document["status"]) == (0, "intact")


@pytest.mark.push
def test_the_flow_does_the_same(prepared, prefect_server):
    server = {"PREFECT_API_URL": prefect_server.url}
    damaged = shards(prepared)[0]
    before = flip(damaged)
    done = prepared.run(*SMALL, "--json", python=FLOW, **server)
    assert done.status == 4, done.err
    (finding,) = done.document["findings"]
    assert finding["path"].endswith(damaged.name)
    assert done.document["error"]["code"] == "damage.digest"
    (run,) = prefect_server.flow_runs("verify imagenet for local")
    assert run["state_type"] == "FAILED"
    (table,) = artifacts(prefect_server, run)
    assert (table["key"], table["type"]) == ("imagenet-findings", "table")
    (row,) = json.loads(table["data"])
    assert (row["path"], row["samples"]) == (finding["path"], 1)

    done = prepared.run(*SMALL, "--repair", "--json", python=FLOW, **server)
    assert (done.status, done.document["status"]) == (0, "repaired"), done.err
    assert damaged.read_bytes() == before
    *_, run = prefect_server.flow_runs("verify imagenet for local")
    assert run["state_type"] == "COMPLETED"
    names = {task["name"] for task in prefect_server.task_runs(run, 4)}
    assert f"repair of {damaged.name}" in names
    assert {found["key"] for found in artifacts(prefect_server, run)} == {
        "imagenet-findings",
        "imagenet-verify",
    }


@pytest.mark.parametrize("arguments", [("--sample", "five"), ("--seed", "-1"), ("--seed", "7")])
def test_invalid_flags_are_refused(place, arguments, monkeypatch, capsys):
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("IMAGENET_SOURCE", place.environment["IMAGENET_SOURCE"])
    assert run(lambda: COMMAND.main([*SMALL, *arguments, "--json"]), json=True) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "config.invalid_flag"
