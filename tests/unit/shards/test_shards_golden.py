"""The bytes of shards, pinned: a change of them is a new version of their format."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from larder.errors import ConfigError
from larder.shards.formats import FORMATS, shard_format
from tests.support.packing import pack, planned, surveyed
from tests.support.sample_orders import Content, order_samples

GOLDEN = Path(__file__).parents[2] / "golden" / "shards.json"

SAMPLES = [
    *(
        Content(f"a/{size:05}", {"bin": bytes(n % 251 for n in range(size))}, size % 7)
        for size in (0, 1, 511, 512, 513, 1024, 70_000)
    ),
    Content("a/parts", {"jpg": b"image", "json": b"{}", "seg.png": b"mask"}, 123_456),
    Content("a/unlabelled", {"txt": b"text"}),
    Content("b/" + "name-of-exactly-100-bytes-".ljust(94, "x"), {"bin": b"1"}, 1),
    Content("directory/" * 12 + "prefix-field", {"bin": b"2"}, 2),
    Content("c/" + "name-too-long-for-any-field-" * 9, {"bin": b"3"}, 3),
    Content("höhe/漢字", {"é": b"4"}, -4),
    Content("z", {"bin": b"5" * 3000, "cls": b"its own"}, None, "validation"),
]


ALONE = [
    sample._replace(parts={"bin": next(iter(sample.parts.values()))})
    for sample in sorted(
        [*SAMPLES, Content("c/magic", {"bin": b"1234\x0a\x23\xd7\xce" * 200}, 9)],
        key=lambda sample: sample.split,
    )
]
"""For formats whose samples have to have one part."""

EQUAL = [
    Content(key, {"bin": key.encode().ljust(900, b"-"), "x": b"", "json": b"{}"}, label, split)
    for key, label, split in [
        *((f"a/{n:02}", n % 7, "train") for n in range(20)),
        ("höhe/漢字", -4, "train"),
        ("z", 2**31 - 1, "validation"),
    ]
]
"""For formats whose samples have to have equal parts."""


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("memory_bytes", [4_000, 1 << 24])  # streamed, and read ahead
def test_the_bytes_of_every_format(store, name, memory_bytes):
    batch, format_ = order_samples(store, SAMPLES), shard_format(name)
    try:
        format_ = surveyed(name, [batch])
        format_.sample_sizes(batch)
    except ConfigError:
        batch = order_samples(store, EQUAL if format_.surveys else ALONE)
        format_ = surveyed(name, [batch])
    plans = planned(batch, format_, 9_000)
    results = pack(batch, store, format_, plans, memory_bytes=memory_bytes)
    found = {file.name: file.sha256 for result in results for file in result.files}
    assert found == {name: hashlib.sha256(store.get(name)).hexdigest() for name in found}
    golden = json.loads(GOLDEN.read_text())
    if os.environ.get("LARDER_WRITE_GOLDEN"):
        golden = {each: golden.get(each) for each in FORMATS} | {name: found}
        GOLDEN.write_text(json.dumps(golden, indent=2) + "\n")
    assert golden.keys() == FORMATS.keys()
    assert found == golden[name]
