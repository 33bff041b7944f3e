"""A lost segment.json is written again from the plan, whatever shaped the segment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, png, write
from verify_lab import published, verified

SHAPES: dict[str, dict[str, Any]] = {
    "count_min": {"shards": {"bytes": 60_000, "count_min": 2}},
    "samples_per_shard": {"shards": {"samples_per_shard": 5, "format": "parquet"}},
    "shuffle_seed": {"shards": {"bytes": 6_000, "shuffle_seed": 7, "format": "records"}},
    "numbered records": {"shards": {"bytes": 6_000, "format": "recordio"}},
    "names of classes": {
        "shards": {
            "bytes": 6_000,
            "format": "tfrecord",
            "features": {"image/encoded": "image", "image/class/text": "class"},
        }
    },
    "transformed images": {"shards": {"bytes": 6_000, "images": {"resize": 16, "format": "jpeg"}}},
    "max_pixels": {"images": {"max_pixels": 10_000}},
    "skipped samples": {"on_bad_sample": "skip", "validate": "header"},
}


def grown(folder: Path, shape: dict[str, Any]) -> Lab:
    """Two segments, the second with another class."""
    objects = {f"{name}/{n}.png": png(n, 20, 20) for name in "ab" for n in range(6)}
    lab = directory_lab(folder, objects, **{"cache": None, "validate": "header", **shape})
    if shape.get("on_bad_sample"):
        write(str(lab.source), {"a/bad.png": b"no image"})
    lab.prepare()
    write(str(lab.source), {f"c/{n}.png": png(50 + n, 20, 20) for n in range(3)})
    lab.prepare()
    return lab


@pytest.mark.parametrize("shape", SHAPES)
def test_segment_json_is_written_again(tmp_path: Path, shape: str) -> None:
    lab = grown(tmp_path, SHAPES[shape])
    with lab.opened_root() as root:
        files = published(root)
        documents = [key for key in files if key.endswith("segment.json")]
        assert len(documents) == 2
        for lost in ([documents[0]], [documents[1]], documents):
            for key in lost:
                root.delete(key)
            document = verified(lab, repair=True)
            assert document["status"] == "repaired", document["findings"]
            assert published(root) == files


def test_a_whole_segment_is_made_again(tmp_path: Path) -> None:
    """As after a kill while everything is damaged: nothing waits for what waits for it."""
    lab = grown(tmp_path, SHAPES["count_min"])
    with lab.opened_root() as root:
        files = published(root)
        for key in files:
            if key.startswith("segments/"):
                root.put(key, files[key][:50])
        document = verified(lab, repair=True)
        assert document["status"] == "repaired", document["findings"]
        assert published(root) == files
