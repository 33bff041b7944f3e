"""docs/reference/formats.md matches what the code writes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from larder.cache.record import Codec
from larder.cache.schema import Field, Schema
from larder.manifest.schemas import OBJECTS, SAMPLES, SHARDS
from larder.samples.images import EXTENSIONS
from larder.versions.documents import SegmentDocument, VersionDocument

PAGE = (Path(__file__).parents[2] / "docs/reference/formats.md").read_text()


def test_the_record_is_that_of_the_example() -> None:
    schema = Schema(
        (
            Field("label", "int64"),
            Field("image", "uint8", (None, 2, 1), optional=True),
            Field("key", "uint8", (None,)),
        )
    )
    image = np.array([[[7], [8]]], np.uint8)
    record = Codec(schema).encode({"label": 3, "image": image, "key": b"ab"})
    example = "".join(re.findall(r"^((?:[0-9a-f]{2} )+) ", PAGE, re.MULTILINE))
    assert bytes.fromhex(example) == record


def test_the_schema_of_the_example_is_canonical() -> None:
    (example,) = re.findall(r"^\{\"fields\".*$", PAGE, re.MULTILINE)
    schema = Schema.parse(example.encode(), "formats.md")
    assert schema.document() == example.encode()


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("objects", OBJECTS),
        ("samples", SAMPLES),
        ("shards", SHARDS),
    ],
)
def test_columns_are_those_of_the_manifests(name: str, schema: pa.Schema) -> None:
    (row,) = re.findall(rf"^\| {name} \|.*\| (.*) \|$", PAGE, re.MULTILINE)
    stated = re.findall(r"`(\w+)` (.+?)(?=, `|$)", row)
    assert stated == [
        (
            field.name,
            ("list" if pa.types.is_list(field.type) else str(field.type)) + "?" * field.nullable,
        )
        for field in schema
    ]


def test_parts_are_those_of_the_samples() -> None:
    (text,) = re.findall(r"`parts` holds structs of (.*): where", PAGE.replace("\n  ", " "))
    stated = re.findall(r"`(\w+)` (\w+\??)", text)
    struct = SAMPLES.field("parts").type.value_type
    assert stated == [(field.name, str(field.type) + "?" * field.nullable) for field in struct]


@pytest.mark.parametrize(
    ("document", "heading"),
    [(SegmentDocument, "**larder-segment-1**"), (VersionDocument, "**larder-version-1**")],
)
def test_keys_are_those_of_the_documents(document: type, heading: str) -> None:
    table = PAGE.split(heading, 1)[1].split("\n\n")[1]
    stated = [
        name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    assert sorted(stated) == sorted(document.__dataclass_fields__)


def test_extensions_of_images_are_listed() -> None:
    (text,) = re.findall(r"extensions of images are ([^.]*)\.", PAGE)
    assert set(re.findall(r"[a-z0-9]+", text)) - {"and"} == EXTENSIONS
