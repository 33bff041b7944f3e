"""Damage to the shards of every format is found, and repaired to the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import column_format
import pytest
from pipeline_lab import Lab, directory_lab
from verify_lab import DAMAGES, damaged, findings, published, sibling_of, verified

from larder.shards.formats import FORMATS
from larder.store.base import Store

pytestmark = pytest.mark.exhaustive

OPTIONS: dict[str, dict[str, int]] = {"batches": {"samples_per_shard": 4}}


@pytest.fixture(scope="module", params=[*FORMATS, column_format.NAME])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    objects = {
        f"{'ab'[number % 2]}/{number:02}.bin": bytes(range(256)) * 4 + b"%02d" % number
        for number in range(12)
    }
    with column_format.registered():
        made = directory_lab(
            tmp_path_factory.mktemp("formats"),
            objects,
            shards={"format": request.param, **OPTIONS.get(request.param, {"bytes": 10_000})},
            cache={"records": "encoded"},
            validate="none",
        )
        made.prepare()
        yield made


def shard_files(root: Store) -> dict[str, bytes]:
    return {key: data for key, data in published(root).items() if "/shards/" in key}


def test_every_damage_to_a_shard_is_found_and_repaired(lab: Lab) -> None:
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


def test_the_samples_that_are_concerned_are_named(lab: Lab) -> None:
    with lab.opened_root() as root:
        files = shard_files(root)
        key = max(files, key=lambda key: len(files[key]))
        with damaged(root, key, None):
            finding = findings(verified(lab))[key]
            assert finding["samples"]["count"] == len(finding["samples"]["keys"]) > 1
            assert all(name.startswith(("a/", "b/")) for name in finding["samples"]["keys"])


def test_several_files_at_once(lab: Lab) -> None:
    with lab.opened_root() as root:
        files = published(root)
        for key, data in shard_files(root).items():
            root.put(key, data[:-1])
        document = verified(lab, repair=True)
        rows = [row for row in document["findings"] if row["repair"]]
        refused = [row["repair"]["message"] for row in rows if not row["repair"]["done"]]
        assert not refused, refused
        assert published(root) == files


@pytest.mark.parametrize(
    ("format_", "place"),
    [("tfrecord", 9), ("tfrecord", -1), ("recordio", 4), ("recordio", -1)],
)
def test_damage_between_parts_without_labels_is_put_down_to_its_sample(
    tmp_path: Path, format_: str, place: int
) -> None:
    """Its length, a checksum, padding: what Larder's index has no checksum of."""
    lab = directory_lab(
        tmp_path,
        {f"{number}.bin": b"%d" % number * 101 for number in range(6)},
        shards={"format": format_, "bytes": 100_000},
        labels=None,
        cache=None,
        validate="none",
    )
    lab.prepare()
    with lab.opened_root() as root:
        files = shard_files(root)
        key = max(files, key=lambda key: len(files[key]))
        wrong = bytearray(files[key])
        wrong[place] ^= 1
        named = "0" if place >= 0 else "5"
        with damaged(root, key, bytes(wrong)):
            finding = findings(verified(lab))[key]
            assert finding["samples"] == {"count": 1, "keys": [named]}
            assert finding["message"] == "the bytes do not match the digest"
            assert verified(lab, repair=True)["status"] == "repaired"
            assert shard_files(root) == files


def test_damage_that_concerns_no_single_sample_is_told_apart(tmp_path: Path) -> None:
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
