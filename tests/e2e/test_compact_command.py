"""``larder compact`` and ``python -m flows.compact``, after a dataset has grown."""

import pytest

from larder.store import open_store
from tests.support.checker import check_all

LARDER = ("-m", "larder.cli.main")
FLOW = ("-m", "flows.compact")
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

    done = place.run(*SMALL, "--json", python=FLOW)
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
