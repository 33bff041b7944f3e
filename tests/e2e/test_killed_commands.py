"""The real command, killed at any stage, or run twice concurrently: one correct version."""

import hashlib
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import larder
from larder.errors import ConfigError
from larder.store import open_store
from tests.support.checker import check_all
from tests.support.commands import Workplace

MANY = ("--dataset", "imagenet", "--json", "--set", "shards.bytes=100 kB")
MANY += ("--set", "cluster.runner.workers=1", "--set", "cluster.runner.batch_bytes=300 kB")
MANY += ("--set", "mirror=true")
ROOT = "larder/imagenet"

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def kill_when(place: Workplace, pattern: str) -> None:
    """Start the command, and kill it and its children when a new file of that kind is there."""
    before = set(place.storage.glob(pattern))
    running = place.start(*MANY)
    for _ in range(60_000):
        if set(place.storage.glob(pattern)) - before:
            break
        assert running.process.poll() is None, running.wait()
        time.sleep(0.002)
    running.send(signal.SIGKILL)
    assert running.wait().status == -signal.SIGKILL


def finished(place: Workplace) -> dict[str, Any]:
    done = place.run(*MANY)
    assert done.status == 0, done.err
    return done.document


def shards(place: Workplace) -> dict[str, str]:
    """The sha256 of every shard."""
    found = sorted(place.storage.glob(f"{ROOT}/segments/*/shards/*/*.tar"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def receipted(place: Workplace) -> int:
    """Shards that have a receipt."""
    receipts = place.storage.glob(f"{ROOT}/segments/*/work/shards/*/*.parquet")
    return len({(path.parent.name, path.name.rpartition("-")[0]) for path in receipts})


def checked(place: Workplace) -> list[str]:
    """The published versions, each of them complete."""
    return list(check_all(open_store(str(place.storage / ROOT))))


def opened(place: Workplace) -> str:
    """The version that a reader gets."""
    return larder.open(f"{place.storage}/{ROOT}").version


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, source: Path, prefect_server: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """The document of an undisturbed run, and its shards."""
    folder = tmp_path_factory.mktemp("undisturbed")
    place = Workplace(folder, IMAGENET_SOURCE=str(source), PREFECT_API_URL=prefect_server.url)
    return finished(place), shards(place)


def test_killed_while_it_shards_and_run_again(reporting, undisturbed):
    kill_when(reporting, f"{ROOT}/segments/*/work/shards/*/*.parquet")
    with pytest.raises(ConfigError):
        opened(reporting)
    assert checked(reporting) == []
    standing = receipted(reporting)
    assert standing > 0

    document = finished(reporting)
    expected, expected_shards = undisturbed
    assert document["status"] == "built"
    assert document["shards"]["reused"] == standing
    assert document["copied"]["count"] == 0
    assert (document["version"], document["digest"]) == (expected["version"], expected["digest"])
    assert shards(reporting) == expected_shards
    assert checked(reporting) == [document["version"]] == [opened(reporting)]


def test_readers_keep_their_version_while_the_next_is_made_and_killed(reporting, own_source):
    folder = own_source(reporting)
    first = finished(reporting)
    image = min(folder.glob("train/*/*.JPEG"))
    shutil.copy(image, image.with_name("n01440764_999.JPEG"))
    kill_when(reporting, f"{ROOT}/.larder-tmp-workshop-*/*")
    assert checked(reporting) == [first["version"]] == [opened(reporting)]
    second = finished(reporting)
    assert second["segments"] == {"total": 2, "new": 1, "omitted": 0}
    assert second["shards"]["reused"] == 1, "that of the new segment"
    assert set(checked(reporting)) == {first["version"], second["version"]}
    assert opened(reporting) == second["version"] != first["version"]
