"""Identities, pinned: one that changes without need makes everybody pack everything again."""

from typing import Any

import numpy as np
from golden_identities import assert_golden

from larder.config.models.dataset import Dataset
from larder.config.shape import (
    BuilderUse,
    DecoderUse,
    Feature,
    FormatOptions,
    ImageOptions,
    ImageShape,
    Transform,
)
from larder.versions.documents import CacheFacts, CacheFile, Shape
from larder.versions.identity import (
    SegmentIdentity,
    ShardIdentity,
    cache_id,
    content_digest,
    inputs_digest,
    segment_id,
    version_id,
)
from larder.versions.omitted import Omitted

INVENTORY, SAMPLES = "1" * 64, "2" * 64

DATASETS: dict[str, dict[str, Any]] = {
    "least": {},
    "all": {
        "splits": {"train": ["train/**", "more/**"], "test": "**"},
        "labels": {"files": {"test": "val.txt"}, "classes": ["cat", "ü"]},
        "shards": {"format": "columns", "bytes": "1 MB", "count_min": 3, "shuffle_seed": 0},
        "validate": "decode",
        "on_bad_key": "skip",
        "on_bad_sample": "skip",
        "cache": {"records": "decoded"},
    },
    "images": {"images": {"max_pixels": 1_000}},
    "cache images": {
        "validate": "decode",
        "cache": {"records": "decoded", "images": {"resize": [224, 200], "mode": "L"}},
    },
    "transform": {"shards": {"images": {"resize": 256, "format": "jpeg", "masks": ["seg"]}}},
    "masks": {
        "shards": {"images": {"masks": ["seg"]}},
        "validate": "decode",
        "cache": {"records": "decoded"},
    },
    "decoding": {
        "validate": "decode",
        "decoding": {"wav": "wav", "mel": "npy shape=80,*"},
        "cache": {"records": "decoded"},
    },
    "hashed": {
        "splits": {
            "by": "hash",
            "seed": -7,
            "fractions": {"train": 0.9, "validation": 0.1},
            "group": "patient-([0-9]+)",
        },
        "labels": {"from": "folder"},
        "cache": {"records": "encoded"},
    },
    "expanded": {
        "source": {
            "url": "/s",
            "include": ["a/**"],
            "exclude": ["**/*.txt"],
            "archives": "expand",
            "rows": {
                "format": "parquet",
                "key": "id",
                "columns": {"image.bytes": "jpg", "x": None},
            },
        },
    },
}
LABEL_FILES = {"all": {"test": "3" * 64}}

OPTIONS = FormatOptions(
    {"image/encoded": Feature("image", "bytes"), "weight": Feature("part", "float", "weight.txt")},
    ("cat", "ü"),
    1_000,
)

TRANSFORM = ImageOptions(
    transform=Transform(
        resize=256, format="jpeg", masks=("seg",), codecs={"pillow": "13.0.0", "jpeg": "x 1"}
    )
)

DECODERS = (
    DecoderUse("mel", "npy", shape=(80, None), version="1"),
    DecoderUse("wav", "m:f", '{"rate":16000}', version="2"),
)


def segment(
    validate: str = "header",
    on_bad_sample: str = "fail",
    first_shards: dict[str, int] | None = None,
    format_: str = "webdataset",
    **shape: Any,
) -> SegmentIdentity:
    options = {"bytes": 150_000_000, "split_bytes": {}, "shuffle_seed": None, **shape}
    made = Shape(format_, options.pop("format_version", 1), **options)
    return SegmentIdentity("d", SAMPLES, made, validate, on_bad_sample, first_shards or {})


SEGMENTS = {
    "least": segment(),
    "grown": segment(first_shards={"train": 12, "validation": 0}),
    "all": segment(
        "decode",
        "skip",
        {"train": 12, "test": 1},
        "columns",
        format_version=2,
        bytes=1_000_000,
        split_bytes={"train": 400_000, "test": 7},
        shuffle_seed=0,
    ),
    "images": segment(images=ImageOptions(1_000)),
    "transform": segment(images=TRANSFORM),
    "decoding": segment("decode", images=ImageOptions(decoders=DECODERS)),
    "options": segment(format_="tfrecord", options=OPTIONS),
}


def omitted(*numbers: int) -> Omitted:
    mask = np.zeros(max(numbers) + 1, np.bool_)
    mask[list(numbers)] = True
    return Omitted.of_mask(mask)


def cache_file(segment: str, digest: str) -> CacheFile:
    return CacheFile("p", 1, "0" * 64, digest * 64, 9, segment=segment, split="train")


VERSIONS: dict[str, Any] = {
    "least": {"segments": [("a" * 32, None)], "classes": (), "split_names": ("train",)},
    "all": {
        "segments": [("a" * 32, "c" * 32), ("b" * 32, "d" * 32)],
        "omitted": {("a" * 32, "train"): omitted(0, 1, 5), ("b" * 32, "test"): omitted(3)},
        "classes": ("cat", "ü"),
        "split_names": ("train", "test"),
        "skipped": "9" * 64,
    },
}
SHARDS = [
    ShardIdentity("train", "d-train-000001.tar", 20_480, "1" * 64, ((0, 2), (5, 6))),
    ShardIdentity("train", "d-train-000000.tar", 10_240, "0" * 64),
    ShardIdentity("test", "d-test-000000.tar", 10_240, "2" * 64),
]
CACHE = CacheFacts("decoded", {"train": (cache_file("a", "3"), cache_file("b", "4"))})


def test_inputs():
    found = {}
    for name, fields in DATASETS.items():
        dataset = Dataset.model_validate({"name": "d", "source": {"url": "/s"}, **fields})
        found[name] = inputs_digest(dataset, INVENTORY, LABEL_FILES.get(name, {}))
    assert_golden("inputs", found)


def test_segments_and_their_caches():
    segments = {name: segment_id(identity) for name, identity in SEGMENTS.items()}
    assert_golden("segments", segments)
    caches = {kind: cache_id(segments["least"], kind) for kind in ("encoded", "decoded")}
    caches["decoders"] = cache_id(segments["least"], "decoded", DECODERS)
    builder = BuilderUse("m:f", '{"rate":16000}', "0" * 64)
    caches["builder"] = cache_id(segments["least"], "built", builder=builder)
    caches["images"] = cache_id(segments["least"], "decoded", images=ImageShape(224, 200, 3))
    assert_golden("caches", caches)


def test_versions():
    assert_golden(
        "versions",
        {name: version_id("d", **{"omitted": {}, **version}) for name, version in VERSIONS.items()},
    )


def test_contents():
    assert_golden(
        "contents",
        {
            "least": content_digest(SHARDS[1:2], [], None),
            "all": content_digest(SHARDS, ["cat", "ü"], CACHE),
        },
    )
