"""``larder tag``, ``lease`` and ``clean``, as a user goes back, keeps and deletes versions."""

import pytest
from test_copy_command import artifacts

from larder.store import open_store
from tests.support.checker import check_all
from tests.support.commands import Workplace

LARDER = ("-m", "larder.cli.main")
FILES = ("--dataset", "files", "--set", "mirror=false", "--json")


def larder(place: Workplace, *arguments: str, status: int = 0) -> dict:
    done = place.run(*arguments, "--json", python=LARDER)
    assert done.status == status, done.err
    return done.document if status == 0 else {"err": done.err}


def versions(place: Workplace) -> list[str]:
    """Two of them, in this order; no lease keeps the first one."""
    ids = []
    for number in range(2):
        (place.folder / f"source/new{number}.bin").write_bytes(b"new")
        ids.append(place.run("prepare", *FILES, python=LARDER).document["version"])
    for each in larder(place, "lease", "files")["leases"]:
        larder(place, "lease", "files", "--drop", each["name"])
    return ids


@pytest.mark.push
def test_a_version_is_gone_back_to_kept_and_deleted(small):
    first, second = versions(small)
    assert larder(small, "tag", "files", "latest", first[:8], "--pin")["moved_from"] == second
    assert small.run("prepare", *FILES, python=LARDER).document["pinned"] == first
    assert larder(small, "tag", "files", "latest", second, "--unpin")["version"] == second
    (lease,) = larder(small, "lease", "files", first, "--for", "bob")["leases"]
    clean = ("clean", "files", "--keep", "1", "--grace", "0h")
    kept = larder(small, *clean, "--plan")["kept"]
    assert kept == {second: "tag latest", first: f"lease {lease['name']}; 30 days left"}
    larder(small, "lease", "files", "--drop", lease["name"])
    storage = str(small.storage)
    lines = small.run(*clean[:-2], "--storage", storage, "--plan", python=LARDER).out.splitlines()
    words = ["files", "keep", second, "announce", f"versions/{first}"]
    assert [line.split()[0] for line in lines] == words
    assert larder(small, *clean)["status"] == "cleaned"
    assert not (small.storage / f"larder/files/versions/{first}").exists()
    assert "version.missing" in larder(small, "tag", "files", "v1", first, status=2)["err"]
    assert small.run("verify", "--dataset", "files", python=LARDER).status == 0


@pytest.mark.push
def test_cleans_and_tags_are_flow_runs(small, prefect_server):
    first, second = versions(small)
    small.environment["PREFECT_API_URL"] = prefect_server.url
    tagged = small.run("files", "v1", second, "--json", python=("-m", "flows.tag"))
    assert tagged.document["version"] == second, tagged.err
    flags = ("files", "--keep", "1", "--grace", "0h", "--json")
    done = small.run(*flags, python=("-m", "flows.clean"))
    assert done.document["status"] == "cleaned", done.err
    assert not (small.storage / f"larder/files/versions/{first}").exists()
    (run,) = prefect_server.flow_runs("clean files")
    (summary,) = [each for each in artifacts(prefect_server, run) if each["key"] == "files-clean"]
    assert "files cleaned" in summary["data"]
    moves = [run for run in larder(small, "show", "files@v1")["runs"] if run["tag"] == "v1"]
    assert [run["flow_run"].startswith("tag files") for run in moves] == [True]


SMALL = ("--dataset", "imagenet", "--set", "shards.bytes=400 kB", "--set", "mirror=false")


@pytest.mark.push
def test_a_dataset_that_has_grown_becomes_one_segment(place, own_source):
    folder = own_source(place)
    first = place.run(*SMALL, "--json", python=(*LARDER, "prepare"))
    assert (first.status, first.document["segments"]["total"]) == (0, 1), first.err
    removed, copied = sorted(folder.glob("train/*/*.JPEG"))[:2]
    copied.with_name("more.JPEG").write_bytes(copied.read_bytes())
    removed.unlink()
    grown = place.run(*SMALL, "--json", python=(*LARDER, "prepare"))
    assert grown.document["segments"]["total"] == 2, grown.err

    done = place.run(*SMALL, "--json", python=("-m", "flows.compact"))
    assert done.status == 0, done.err
    assert done.document["segments"] == {"total": 1, "new": 1, "omitted": 0}
    assert done.document["shards"]["samples"] == first.document["shards"]["samples"]
    again = place.run(*SMALL, "--json", python=(*LARDER, "compact"))
    assert (again.document["status"], again.document["version"]) == (
        "reused",
        done.document["version"],
    )
    config = (place.folder / "out/local/imagenet/experiment.yaml").read_text()
    assert done.document["version"] in config
    assert len(check_all(open_store(str(place.folder / "data/local/larder/imagenet")))) == 3
