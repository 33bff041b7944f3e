"""The index of a tar archive for NVIDIA DALI (``fn.readers.webdataset(index_paths=...)``).

The text that DALI's ``tools/wds2idx.py`` writes, which DALI reads in ``webdataset_loader.cc``: a
line ``v1.2 SAMPLES``, and for each sample a line with ``EXT OFFSET SIZE NAME`` of each member, all
separated by spaces. Where a name contains a space, the file is of the previous version, v1.1, which
is the same without names; DALI reads both. Names only appear in its messages.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.spool import Spool


class DaliTarIndex:
    kind = "dali"

    def file_name(self, shard: str) -> str:
        return f"{shard.removesuffix('.tar')}.idx"

    def content(self, rows: Spool) -> Iterator[bytes] | None:
        """The text; None if an extension contains a space, for which DALI has no notation."""
        named = True
        for batch in rows.read():
            if _spaced(batch.column("parts").flatten().field("ext")):
                return None
            named = named and not _spaced(batch.column("key"))
        return _text(rows, named=named)


def _text(rows: Spool, *, named: bool) -> Iterator[bytes]:
    yield f"v1.{2 if named else 1} {rows.num_rows}\n".encode()
    for batch in rows.read():
        yield _lines(batch, named=named)


def _lines(rows: pa.RecordBatch, *, named: bool) -> bytes:
    parts = rows.column("parts")
    counts = pc.list_value_length(parts).to_numpy()
    entries = parts.flatten()
    exts = entries.field("ext")
    columns = [exts, *(entries.field(name).cast(pa.string()) for name in ("offset", "length"))]
    if named:
        own_keys = rows.column("key").take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        columns.append(pc.binary_join_element_wise(own_keys, exts, "."))
    members = pc.binary_join_element_wise(*columns, " ")
    stops = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    lines = pc.binary_join(pa.ListArray.from_arrays(stops, members), " ")
    text = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")
    return f"{text[0].as_py()}\n".encode()


def _spaced(texts: pa.Array) -> bool:
    """Whether any contains a space: keys contain no other character that ends a word."""
    return bool(pc.any(pc.match_substring(texts, " ")).as_py())
