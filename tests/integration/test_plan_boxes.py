"""Boxes in a COCO file keep the pixels of the source where images are resized: the plan says so."""

import json

import pytest
from pipeline_lab import directory_lab, images

COCO = json.dumps(
    {
        "images": [{"id": 1, "file_name": "a/00.png", "width": 9, "height": 7}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 7, 5]}],
        "categories": [{"id": 1, "name": "cat"}],
    }
).encode()
ROWS = b'{"file_name": "a/00.png", "text": "x"}\n'
FILES = {"files": "x.json", "part": "boxes.json"}
RESIZED = {"images": {"resize": 4}}
SHAPED = {"records": "decoded", "images": {"resize": [4, 4]}}


@pytest.mark.parametrize(
    ("annotations", "shards", "cache", "warned"),
    [
        (FILES, RESIZED, None, True),
        ({**FILES, "files": "X.JSON"}, RESIZED, None, True),
        ({**FILES, "format": "coco"}, RESIZED, None, True),
        (FILES, {}, SHAPED, True),
        (FILES, {}, {"records": "decoded"}, False),
        (FILES, {"images": {"quality": 80}}, None, False),
        ({**FILES, "part": None, "columns": {"txt": "width"}}, RESIZED, None, False),
        ({**FILES, "files": "x.jsonl"}, RESIZED, None, False),
    ],
)
def test_a_plan_warns_of_boxes_that_are_not_scaled(tmp_path, annotations, shards, cache, warned):
    lab = directory_lab(tmp_path, images() | {"x.json": COCO, "X.JSON": COCO, "x.jsonl": ROWS})
    samples = {"annotations": annotations, "missing": "keep"}
    fields = {"samples": samples, "shards": shards, "cache": cache, "labels": None}
    document = lab.plan(**fields)
    codes = [warning["code"] for warning in document["warnings"]]
    assert ("source_pixels" in codes) == warned
