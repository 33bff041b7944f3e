"""Shards in memory with their index, for the tests of caches."""

from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c
import pyarrow as pa

from larder.cache.from_samples import CacheInput
from larder.shards.reading.ranges import PartReader
from larder.versions.rows import INDEXED
from tests.support.memory import MemoryStore

GAP = b"a header"


class Shelf:
    """Shards in memory, and the index of one split."""

    def __init__(self, name: str) -> None:
        self.store = MemoryStore(name)
        self.rows: list[dict[str, Any]] = []

    def add_shard(
        self, name: str, samples: Sequence[tuple[str, int | None, Mapping[str, bytes]]]
    ) -> None:
        data = bytearray()
        for key, label, contents in samples:
            begin, parts = len(data), []
            for ext, content in contents.items():
                data += GAP
                crc = google_crc32c.value(content)
                parts.append(
                    {"ext": ext, "offset": len(data), "length": len(content), "crc32c": crc}
                )
                data += content
            self.rows.append(
                {
                    "key": key,
                    "shard": name,
                    "offset": begin,
                    "length": len(data) - begin,
                    "label": label,
                    "parts": parts,
                }
            )
        self.store.put(f"shards/{name}", bytes(data))

    def samples(self, kind: Any, **options: Any) -> CacheInput:
        return CacheInput(self.batches, self.open_shard, kind, **options)

    def open_shard(self, name: str) -> PartReader:
        return PartReader(self.store, f"shards/{name}")

    def batches(self) -> list[pa.RecordBatch]:
        table = pa.Table.from_pylist(self.rows, INDEXED)
        return [batch for batch in table.to_batches(max_chunksize=3) if batch.num_rows]
