"""Keeps a few shards open that samples are read from again and again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from larder.samples.indexed import IndexedSample, SampleReader
from larder.store.base import Closing


class OpenShards(Closing):
    """Shards of any format, each read by one thread at a time and from front to back.

    A shard is opened again to go back in it. At most ``kept`` are open while no thread reads them.
    """

    def __init__(self, kept: int = 16) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._shards: OrderedDict[str, _Shard] = OrderedDict()

    def read(
        self, key: str, open_shard: Callable[[], SampleReader], samples: Sequence[IndexedSample]
    ) -> list[Mapping[str, bytes]]:
        """The parts of some samples of a shard, by extension; the samples are in its order."""
        with self._used(key) as shard, shard.lock:
            return [shard.read(sample, open_shard) for sample in samples]

    def close(self) -> None:
        """Close all shards; no thread may be reading."""
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()

    @contextmanager
    def _used(self, key: str) -> Iterator[_Shard]:
        with self._lock:
            shard = self._shards.setdefault(key, _Shard())
            shard.users += 1
        try:
            yield shard
        finally:
            with self._lock:
                shard.users -= 1
                self._shards.move_to_end(key)
                unused = [each for each, found in self._shards.items() if not found.users]
                surplus = [
                    self._shards.pop(each) for each in unused[: max(0, len(unused) - self._kept)]
                ]
            for each in surplus:
                each.close()


class _Shard:
    """A shard that may be open, and the end of what was read of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self._reader: SampleReader | None = None
        self._stack = ExitStack()
        self._end = 0

    def read(
        self, sample: IndexedSample, open_shard: Callable[[], SampleReader]
    ) -> Mapping[str, bytes]:
        if self._reader is None or sample.offset < self._end:
            self.close()
            self._reader = self._stack.enter_context(open_shard())
        self._end = sample.offset + sample.length
        try:
            return self._reader.read(sample, sample.parts)
        except BaseException:
            self.close()  # where it stands now is not known
            raise

    def close(self) -> None:
        """Close it; it can be opened again."""
        self._reader = None
        self._stack.close()
