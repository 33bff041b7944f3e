"""Damage to the shards of every format is found, and repaired to the same bytes."""

import pytest
from pipeline_lab import Lab, directory_lab
from verify_lab import DAMAGES, damaged, findings, published, sibling_of, verified

from larder.shards.formats import FORMATS
from larder.store.base import Store

pytestmark = pytest.mark.push

OPTIONS: dict[str, dict[str, int]] = {"batches": {"samples_per_shard": 4}}


@pytest.fixture(scope="module", params=FORMATS)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    objects = {
        f"{'ab'[number % 2]}/{number:02}.bin": bytes(range(256)) * 4 + b"%02d" % number
        for number in range(12)
    }
    made = directory_lab(
        tmp_path_factory.mktemp("formats"),
        objects,
        shards={"format": request.param, **OPTIONS.get(request.param, {"bytes": 10_000})},
        cache={"records": "encoded"},
        validate="none",
    )
    made.prepare()
    return made


def shard_files(root: Store) -> dict[str, bytes]:
    return {key: data for key, data in published(root).items() if "/shards/" in key}


def test_every_damage_to_a_shard_is_found_and_repaired(lab):
    assert verified(lab)["findings"] == []
    with lab.opened_root() as root:
        files = shard_files(root)
        suffixes = {key.rpartition(".")[2] for key in files}
        chosen = [next(key for key in files if key.endswith(suffix)) for suffix in suffixes]
        for key in chosen:
            for damage, made in DAMAGES.items():
                wrong = made(files[key], files[sibling_of(key, files)])
                with damaged(root, key, wrong):
                    found = findings(verified(lab))
                    assert set(found) == {key}, f"{damage} of {key}"
                    document = verified(lab, repair=True)
                    assert document["status"] == "repaired", document["findings"]
                    assert shard_files(root) == files


def test_damage_that_concerns_no_single_sample_is_told_apart(tmp_path):
    """NumPy does not load such a batch, although Larder can read its samples."""
    lab = directory_lab(
        tmp_path,
        {f"{number}.bin": b"%d" % number for number in range(6)},
        shards={"format": "batches", "samples_per_shard": 6},
        labels=None,
        cache=None,
        validate="none",
    )
    lab.prepare()
    with lab.opened_root() as root:
        ((key, data),) = shard_files(root).items()
        with damaged(root, key, b"p" + data[1:]):
            finding = findings(verified(lab))[key]
            assert finding["samples"] == {"count": 0, "keys": []}
            assert finding["message"].endswith("digest; the parts of its samples are intact")
