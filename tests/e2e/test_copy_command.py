"""``larder copy`` and ``larder prune``, and the same as flows: real commands, and a real server."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from larder.cli.copy_command import COPY as COPY_COMMAND
from larder.cli.exit import run
from tests.support.commands import Finished
from tests.support.prefect_server import PrefectServer

LARDER = ("-m", "larder.cli.main")
COPY, PRUNE = (*LARDER, "copy"), (*LARDER, "prune")
FLOW_COPY, FLOW_PRUNE = ("-m", "flows.copy"), ("-m", "flows.prune")


def fill(folder: Path) -> Path:
    (folder / "a").mkdir(parents=True)
    for number in range(12):
        (folder / f"a/{number:02}.bin").write_bytes(bytes([number]) * 10)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "_larder" not in path.parts
    }


def ok(done: Finished) -> Finished:
    assert done.status == 0, done.err
    return done


def test_a_copy_and_a_prune(place):
    source, storage = fill(place.folder / "from"), place.folder / "to"
    first = ok(place.run("from", "./to/", python=COPY))
    assert "copied   12 objects, 120 B" in first.out
    assert "mirror: done, 12 objects, 120 B" in first.err
    (source / "a/03.bin").unlink()
    pruned = ok(place.run(str(source), f"file://{storage}", "--json", python=PRUNE))
    assert pruned.document["deleted"] == {"count": 1, "bytes": 10}
    assert files(storage) == files(source)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("from", "./from/"), "config.overlap"),
        (("from", "to", "more"), "config.invalid_flag"),
    ],
)
def test_odd_input_is_refused_in_one_line(arguments, code, place, monkeypatch, capsys):
    fill(place.folder / "from")
    monkeypatch.chdir(place.folder)
    status = run(lambda: COPY_COMMAND.main([*arguments, "--json", "--quiet"]), json=True)
    told = capsys.readouterr()
    assert (status, json.loads(told.out)["error"]["code"]) == (2, code)
    assert len(told.err.splitlines()) == 1
    assert not (place.folder / "to").exists()


def artifacts(
    server: PrefectServer, run: dict[str, Any], types: Sequence[str] = ("table", "markdown")
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.post(
        "/artifacts/filter",
        {
            "artifacts": {
                "flow_run_id": {"any_": [run["id"]]},
                "type": {"any_": list(types)},
                "key": {"exists_": True},  # others are results of tasks
            }
        },
    )
    for each in found:  # without the digest of team, dataset and storage
        each["key"] = re.sub("-[0-9a-f]{8}-", "-", f"-{each['key']}")[1:]
    return found


@pytest.mark.push
def test_a_copy_as_a_flow_run(reporting, prefect_server):
    source = fill(reporting.folder / "source-of-flow")
    storage = reporting.folder / "to"
    (storage / "a/05.bin/in the way").mkdir(parents=True)
    (storage / "a/05.bin/in the way/x").write_bytes(b"1")
    sizes = "--set", "runner.batch_bytes=40", "--set", "runner.workers=3"
    arguments = ("source-of-flow", "to", "--json", *sizes)
    done = reporting.run(*arguments, python=FLOW_COPY)
    assert (done.status, done.document["failed"]) == (1, 1), done.err
    (run,) = prefect_server.flow_runs("copy source-of-flow to to")
    assert run["state_type"] == "FAILED"
    names = sorted(task["name"] for task in prefect_server.task_runs(run, 5))
    assert names == [
        "copy objects 1 to 4",
        "copy objects 5 to 8",
        "copy objects 9 to 12",
        "plan of the copy",
        "record of the copy",
    ]
    error, table = sorted(artifacts(prefect_server, run), key=lambda each: each["key"])
    assert (error["key"], error["type"]) == ("error", "markdown")
    assert (table["key"], table["type"]) == ("failures", "table")
    (row,) = json.loads(table["data"])
    assert (row["key"], row["code"], row["attempts"]) == ("a/05.bin", "object.bad_key", 1)

    shutil.rmtree(storage / "a/05.bin")
    again = ok(reporting.run(*arguments, python=FLOW_COPY))
    assert again.document["copied"]["count"] == 1
    assert files(storage) == files(source)
    (source / "a/01.bin").unlink()
    pruned = reporting.run("source-of-flow", "to", "--max-delete", "1", "--json", python=FLOW_PRUNE)
    assert ok(pruned).document["deleted"]["count"] == 1
    (run,) = prefect_server.flow_runs("prune to of what is not in source-of-flow")
    assert run["state_type"] == "COMPLETED"
    (note,) = artifacts(prefect_server, run)
    assert (note["key"], note["type"]) == ("prune", "markdown")
    assert "a/01.bin" in note["data"]
    names = sorted(task["name"] for task in prefect_server.task_runs(run, 2))
    assert names == ["plan of the prune", "prune what is gone"]


@pytest.mark.push
def test_a_run_waits_for_a_slot_of_its_bucket(reporting, prefect_server, rclone_server):
    rclone_server.create_bucket("limited")
    fill(reporting.folder / "from")
    slot = {"names": ["larder-bucket:limited"], "slots": 1}
    limit = {"name": "larder-bucket:limited", "limit": 1}
    prefect_server.post("/v2/concurrency_limits/", limit)
    prefect_server.post("/v2/concurrency_limits/increment", slot)
    arguments = ("from", "s3://limited/")
    running = reporting.start(*arguments, python=FLOW_COPY, **rclone_server.environment)
    running.read_until("wait: started")
    prefect_server.post("/v2/concurrency_limits/decrement", slot)
    assert "copied   12 objects" in ok(running.wait()).out
