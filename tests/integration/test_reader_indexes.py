"""The index files that readers other than Larder's need, from the run to the published version."""

import tarfile
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, png, write

from tests.support.stores import KeyStop

pytestmark = pytest.mark.exhaustive

FIELDS: dict[str, Any] = {"splits": {"train": ["a/**", "b/**"], "validation": "c/**"}}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return directory_lab(tmp_path, **FIELDS)


def files(lab: Lab, pattern: str) -> dict[str, Path]:
    """By split and stem."""
    found = Path(str(lab.storage)).glob(f"larder/d/segments/*/{pattern}")
    return {f"{path.parent.name}/{path.stem}": path for path in found}


def text_of(archive: Path) -> str:
    """What DALI's wds2idx.py writes for an archive."""
    samples: dict[str, list[str]] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            key, _, ext = member.name.partition(".")
            words = f"{ext} {member.offset_data} {member.size} {member.name}"
            samples.setdefault(key, []).append(words)
    lines = [f"v1.2 {len(samples)}", *map(" ".join, samples.values())]
    return "\n".join(lines) + "\n"


def test_every_archive_of_all_segments_has_an_index_for_dali(lab):
    lab.prepare()
    write(str(lab.source), {"a/new.png": png(1234)})
    Path(str(lab.source), "c/01.png").unlink()
    lab.prepare()
    archives, indexes = files(lab, "shards/*/*.tar"), files(lab, "index/dali/*/*.idx")
    assert archives.keys() == indexes.keys()
    assert len(archives) > 2
    for name, archive in archives.items():
        assert indexes[name].read_text() == text_of(archive)
    assert len(lab.newest().version.files_of("indexes")) == 2


@pytest.mark.parametrize("damage", ["missing", "shorter", "altered"])
def test_an_index_that_is_not_there_is_made_again_with_the_segment(lab, damage):
    assert lab.stopped(KeyStop("segment.json")) is None
    wanted = {name: path.read_bytes() for name, path in files(lab, "index/dali/*/*.idx").items()}
    for path in files(lab, "index/dali/*/*.idx").values():
        if damage == "shorter":
            path.write_bytes(path.read_bytes()[:-1])
        elif damage == "altered":
            path.write_bytes(path.read_bytes().replace(b"v1.2", b"v1.3"))
        else:
            path.unlink()
    assert lab.prepare()["shards"]["reused"] == len(wanted)
    now = {name: path.read_bytes() for name, path in files(lab, "index/dali/*/*.idx").items()}
    assert now == wanted
    lab.check()
