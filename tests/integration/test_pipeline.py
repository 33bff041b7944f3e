"""Complete runs, without an orchestrator: the result has exactly what was in the source."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from pipeline_lab import directory_lab, images
from sample_names import split_key

GLOBS = {"train": ["a/**", "b/**"], "validation": "c/**"}
HASH = {"by": "hash", "seed": 7, "fractions": {"train": 0.6, "validation": 0.4}}
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "hashed, shuffled, without labels, mirrored": {
        "splits": HASH,
        "shards": {"bytes": 8_000, "shuffle_seed": 7},
        "labels": None,
        "mirror": True,
    },
    "a split without samples, not looked into": {
        "splits": {"train": "**", "validation": "nothing/**"},
        "validate": "none",
        "cache": None,
    },
    "labels in a file": {
        "splits": GLOBS,
        "labels": {"from": "folder", "files": {"validation": "labels.txt"}},
        "cache": {"records": "encoded"},
    },
}
LABELS: dict[str, dict[str, int]] = {
    "hashed, shuffled, without labels, mirrored": {},
    "labels in a file": {"a": 0, "b": 1, "c/00": 3, "c/01": 2, "c/02": 3, "c/03": 2},
}
CONCURRENCY = {
    "runner": {"workers": 3, "batch_bytes": 9_000},
    "copy": {"concurrency": 2, "memory_bytes": 3 * 64 * 1024**2},
}


def expected(objects: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
    samples: dict[str, dict[str, bytes]] = {}
    for key, data in objects.items():
        name = split_key(key)
        samples.setdefault(name.sample_key, {})[name.ext] = data
    return samples


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_published_is_what_was_in_the_source(tmp_path, variant):
    objects, fields = images(), VARIANTS[variant]
    lab = directory_lab(tmp_path, objects, **fields)
    lab.add({"labels.txt": b"00 late\n01.png early\n02 late\nc/03.png early\n"})
    lab = replace(lab, source={"url": lab.source, "include": ["*/*"]})
    document = lab.prepare(cluster=CONCURRENCY)
    published = lab.only()
    in_shards = {
        sample.key: {ext: data for ext, data in sample.parts.items() if ext != "cls"}
        for samples in published.samples.values()
        for sample in samples
    }
    assert in_shards == expected(objects)
    labels = LABELS.get(variant, {"a": 0, "b": 1, "c": 2})
    for sample in itertools.chain.from_iterable(published.samples.values()):
        assert sample.label == labels.get(sample.key, labels.get(sample.key[0]))
    assert document["status"] == "built"
    assert document["digest"] == published.version.digest
    assert document["objects"] == {"count": 15, "bytes": sum(map(len, objects.values()))}
    assert document["copied"]["count"] == (15 if "mirror" in fields else 0)
    assert document["shards"]["samples"] == 12
    assert document["shards"]["count"] == len(published.shards)
    assert document["failures"] == []
    assert json.loads(json.dumps(document)) == document
