import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from larder.cache.cache_record import Codec
from larder.cache.schema import Field, RecordSchema
from larder.manifest.schemas import OBJECTS, SKIPPED, SOURCES
from larder.manifest.sealed import StoredFile
from larder.samples.image_parts import EXTENSIONS
from larder.segments.derived_files import MAX_PATTERNS
from larder.versions.documents import (
    ROLES,
    CacheDocument,
    CacheFile,
    SegmentDocument,
    SegmentSplit,
    SegmentUse,
    Shape,
    SplitFacts,
    VersionDocument,
)
from larder.versions.index import BLOCK_ROWS, BLOCKS, HEADER_BYTES, PARTS, ROWS
from larder.versions.omitted import MAX_INLINE_RANGES

REFERENCE = Path(__file__).parents[2] / "docs/reference"
PAGE, IMAGES = ((REFERENCE / name).read_text() for name in ("formats.md", "images.md"))


def test_the_record_is_that_of_the_example():
    schema = RecordSchema(
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


def test_the_schema_of_the_example_is_canonical():
    (example,) = re.findall(r"^\{\"digest\".*\"lmdb\".*$", PAGE, re.MULTILINE)
    schema = RecordSchema.parse(example.encode(), "formats.md")
    of_file = {name: json.loads(example)[name] for name in ("place", "digest")}
    assert schema.document(**of_file) == example.encode()


@pytest.mark.parametrize(
    ("name", "schema"), [("objects", OBJECTS), ("sources", SOURCES), ("skipped", SKIPPED)]
)
def test_columns_are_those_of_the_manifests(name, schema):
    (row,) = re.findall(rf"^\| {name} \|.*\| (.*) \|$", PAGE, re.MULTILINE)
    stated = re.findall(r"`(\w+)` (.+?)(?=, `|$)", row)
    assert stated == [
        (
            field.name,
            ("list" if pa.types.is_list(field.type) else str(field.type)) + "?" * field.nullable,
        )
        for field in schema
    ]


@pytest.mark.parametrize(("name", "items"), [("rows", ROWS), ("parts", PARTS), ("blocks", BLOCKS)])
def test_items_are_those_of_the_columns(name, items):
    (row,) = re.findall(rf"^\| {name} \| [^|]* \| (`.*) \|$", PAGE, re.MULTILINE)
    stated = re.findall(r"`(\w+)` (\w+)", row)
    assert stated == [(field, items[field].name) for field in items.names]
    assert f"begin at byte\n{HEADER_BYTES}." in PAGE
    assert f"{BLOCK_ROWS:,} samples" in PAGE


def test_parts_are_those_of_the_sources():
    (text,) = re.findall(r"`parts` holds structs of (.*?): ", PAGE.replace("\n  ", " "))
    stated = re.findall(r"`(\w+)` (\w+\??)", text)
    struct = SOURCES.field("parts").type.value_type
    assert stated == [(field.name, str(field.type) + "?" * field.nullable) for field in struct]


@pytest.mark.parametrize(
    ("document", "heading"),
    [
        (SegmentDocument, "**larder-segment-2**"),
        (CacheDocument, "**larder-segment-cache-1**"),
        (VersionDocument, "**larder-version-2**"),
    ],
)
def test_keys_are_those_of_the_documents(document, heading):
    stated = [name for names, _ in rows_of(heading) for name in names]
    assert sorted(stated) == sorted(document.__dataclass_fields__)
    (formats,) = (text for names, text in rows_of(heading) if "format" in names)
    assert formats == f"`{document.__dataclass_fields__['format'].default}`"


def rows_of(heading: str) -> list[tuple[list[str], str]]:
    """The keys of each row of a table, and what is said of them."""
    table = PAGE.split(heading, 1)[1].split("\n\n")[1]
    cells = [[cell.strip() for cell in row.split("|")] for row in table.splitlines()[2:]]
    return [(re.findall(r"`(\w+)`", keys), text) for _, keys, text, _ in cells]


@pytest.mark.parametrize(
    ("heading", "key", "nested"),
    [
        ("**larder-segment-2**", "shape", Shape),
        ("**larder-segment-2**", "splits", SegmentSplit),
        ("**larder-segment-2**", "files", StoredFile),
        ("**larder-segment-cache-1**", "files", CacheFile),
        ("**larder-version-2**", "segments", SegmentUse),
        ("**larder-version-2**", "splits", SplitFacts),
        ("**larder-version-2**", "files", StoredFile),
    ],
)
def test_nested_keys_are_those_of_the_documents(heading, key, nested):
    (text,) = (text for names, text in rows_of(heading) if key in names)
    assert set(nested.__dataclass_fields__) <= set(re.findall(r"`(\w+)`", text))


def test_files_of_a_segment_have_roles_of_a_version():
    (text,) = (text for names, text in rows_of("**larder-segment-2**") if "files" in names)
    stated = set(re.findall(r"`(\w+)`", text)) - StoredFile.__dataclass_fields__.keys()
    assert stated == {"rows", "sources", "skipped"} <= set(ROLES)


def test_roles_and_the_limits_of_ranges_and_patterns_are_stated():
    (text,) = (text for names, text in rows_of("**larder-version-2**") if "files" in names)
    assert set(ROLES) <= set(re.findall(r"`(\w+)`", text))
    assert f"more than {MAX_INLINE_RANGES:,} ranges" in PAGE
    assert f"more than {MAX_PATTERNS} patterns" in PAGE


def test_extensions_of_images_are_listed():
    (text,) = re.findall(r"component of its extension is ([^.]*)\.", IMAGES)
    assert set(re.findall(r"[a-z0-9]+", text)) - {"or"} == EXTENSIONS
