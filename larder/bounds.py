"""Bounds on keys, on the sizes that stores, documents and files claim, and on memory."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_KEY_BYTES = 1024
"""The longest key of S3 and GCS, bytes of UTF-8."""

MAX_NAME_BYTES = 255
"""The longest file name: Linux' NAME_MAX."""

MAX_PATH_BYTES = 4095
"""The longest path: Linux' PATH_MAX, less the zero at the end."""

ERROR_BYTES = 64 * 1024
"""The part of an error's answer that is read. Its code and message are the first kilobyte; the rest
repeats the head of the request, at most 8 KiB, up to four times.
"""

XML_BYTES = 16 * 1024**2
"""The longest XML of a store. A listing of 1,000 keys of 1,024 bytes has 7.2 MB if each byte is
written as ``&quot;``, and each key has 1 KiB of other fields.
"""

XML_TAGS = 200_000
"""The most tags in a store's XML. At AWS, a listing has 26 tags for each of 1,000 keys; a tag takes
100 to 280 bytes of memory.
"""

DOCUMENT_BYTES = 64 * 1024**2
"""The longest JSON document, or page of a listing. A version of a million classes with names of 60
bytes fits. So does a page of GCS: 1,000 objects with names of 1 KiB and metadata of 8 KiB have
56 MB if each byte is written as ``\\u0001``.
"""

JSON_VALUES = 4_000_000
"""The most commas and brackets in a JSON document, outside of strings. A value takes up to 72 bytes
of memory, so 4 million values take 288 MB.
"""

PARQUET_LEAST_BYTES = 64 * 1024**2
"""The memory that the values of any manifest may take. A row group, which is held as a whole, takes
as much if it has 65,536 rows with keys of 1,000 bytes.
"""

PARQUET_EXPANSION = 512
"""The further memory for each byte of a manifest. Keys of 3,900 bytes that differ in a number are
stored in 8 to 13 bytes: 1:350 with the other columns.
"""

DIMENSIONS = 32
"""The most dimensions of an array before numpy 2.0."""

ITEMS = 1 << 40
"""The most items of an array in one record. Its bytes in a batch of a million records stay a number
of 64 bits, even if the array is empty because one dimension is 0.
"""

WRITER_BYTES = 48 * 1024**2
"""Memory of a stream to an object store: an upload part of 16 MiB being filled, two being sent."""

STREAM_BYTES = 64 * 1024**2
"""Memory of a batch: `WRITER_BYTES`, and the bytes that are read ahead."""

TABLES_BYTES = 1024**3
"""Memory of the tables of a run, unless the cluster says otherwise."""

BATCH_SAMPLES = 100_000
"""Maximum number of samples in a batch."""


class BoundError(ValueError):
    """A size exceeds its bound; the message names both."""


_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def _commas_and_brackets(data: bytes) -> int:
    return sum(map(data.count, (b",", b"[", b"{")))


def parse_bounded(data: bytes) -> Any:
    """Parse a JSON document; ValueError for other text, `BoundError` beyond `JSON_VALUES`."""
    values = _commas_and_brackets(data)
    if values > JSON_VALUES:  # the metadata of objects, for example, may be lists in strings
        values -= sum(_commas_and_brackets(match[0]) for match in _STRING.finditer(data))
    if values > JSON_VALUES:
        raise BoundError(f"it has {values:,} values, a document at most {JSON_VALUES:,}")
    return json.loads(data)
