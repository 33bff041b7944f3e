"""What a user would otherwise do, in a process of its own: ``python -m benchmarks.growing.peers``.

Imports nothing of Larder, so that any Python with the peers' packages can run it; see
benchmarks/requirements-growth.txt. What is imported is not part of a turn's time.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.growing.invented import Invented, Made
from benchmarks.growing.memory import status_bytes, watched
from benchmarks.growing.names import Names, Picks, label_of
from benchmarks.harness import answer

Turn = Callable[[], None]
Sample = tuple[str, bytes]

_ROWS = 256
_NO_COUNT = 1 << 40


class Task:
    """One request: the body, the change, and where to write.

    Args:
        request: ``real``, ``files``, ``count``, ``ext``, ``mean_bytes``, ``shard_bytes``,
            ``picks`` (added, removed, changed), ``out`` and ``first``.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.names = Names(request["count"], request["ext"])
        self.picks = Picks(**{name: tuple(each) for name, each in request["picks"].items()})
        self.files = Path(request["files"])
        self.out = Path(request["out"])
        self.first: bool = request["first"]
        self.shard_bytes: int = request["shard_bytes"]
        self._real: bool = request["real"]
        self._invented = Invented(self.names, request["mean_bytes"], self.picks)

    def samples(self) -> Iterator[Sample]:
        """All samples, in the order of their keys."""
        if self._real:
            return _read(self.files, sorted(_walk(self.files)))
        return _contents(self._invented)

    def new(self) -> Iterator[Sample]:
        """Samples that were added or have other content."""
        if not self._real:
            return _contents((*self._invented.added(), *self._invented.changed()))
        added = (self.names.key(number, added=True) for number in self.picks.added)
        return _read(self.files, [*added, *map(self.names.key, self.picks.changed)])

    def old(self) -> list[str]:
        """Keys of samples that are gone, or have other content."""
        return [self.names.key(number) for number in (*self.picks.removed, *self.picks.changed)]


def _contents(made: Iterable[Made]) -> Iterator[Sample]:
    return ((each.key, each.content) for each in made)


def _walk(folder: Path) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        below = os.path.relpath(place, folder)
        yield from (f"{below}/{name}" for name in names)


def _read(folder: Path, keys: Iterable[str]) -> Iterator[Sample]:
    for key in keys:
        yield key, (folder / key).read_bytes()


def webdataset_turn(task: Task) -> Turn:
    """Everything again, with a ShardWriter for each split, as its documentation shows it."""
    writer_of = import_module("webdataset").ShardWriter

    def turn() -> None:
        writers: dict[str, Any] = {}
        limits = {"maxsize": task.shard_bytes, "maxcount": _NO_COUNT, "verbose": 0}
        for key, content in task.samples():
            split = key.partition("/")[0]
            if split not in writers:
                writers[split] = writer_of(f"{task.out}/{split}-%06d.tar", **limits)
            name, _, ext = key.rpartition(".")
            writers[split].write({"__key__": name, ext: content, "cls": label_of(key)})
        for writer in writers.values():
            writer.close()

    return turn


def streaming_turn(task: Task) -> Turn:
    """Everything again, with an MDSWriter for each split, without hashes or compression."""
    writer_of = import_module("streaming").MDSWriter
    columns = {"key": "str", "data": "bytes", "label": "int"}

    def turn() -> None:
        writers: dict[str, Any] = {}
        for key, content in task.samples():
            split = key.partition("/")[0]
            if split not in writers:
                out = str(task.out / split)
                writers[split] = writer_of(out=out, columns=columns, size_limit=task.shard_bytes)
            writers[split].write({"key": key, "data": content, "label": label_of(key)})
        for writer in writers.values():
            writer.finish()

    return turn


def dvc_turn(task: Task) -> Turn:
    """``dvc add`` of the folder of the files; the repository is the folder that holds it."""
    root = task.files.parent
    os.environ |= {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(root / ".dvc" / "site")}
    os.chdir(root)
    stage, kept = root / "files.dvc", root / ".dvc" / "files.dvc.first"
    main = import_module("dvc.cli").main
    if task.first:
        # `dvc init` refuses a folder `.dvc` that is there.
        shutil.rmtree(root / ".dvc", ignore_errors=True)
        stage.unlink(missing_ok=True)
        assert main(["init", "--no-scm", "--quiet"]) == 0
    else:
        shutil.copy2(kept, stage)

    def turn() -> None:
        assert main(["add", "--quiet", "files"]) == 0
        if task.first:
            shutil.copy2(stage, kept)

    return turn


def lance_turn(task: Task) -> Turn:
    """One dataset: rows are marked as deleted and appended.

    Lance is told what changed, which the others find out.
    """
    lance, arrow = import_module("lance"), import_module("pyarrow")
    at = str(task.out / "samples.lance")
    fields = {"key": arrow.string(), "data": arrow.large_binary(), "label": arrow.int32()}
    schema = arrow.schema(list(fields.items()))

    def batch(rows: list[Sample]) -> Any:
        keys, contents = ([row[place] for row in rows] for place in (0, 1))
        columns = (keys, contents, [label_of(str(key)) for key in keys])
        arrays = map(arrow.array, columns, fields.values())
        return arrow.record_batch(list(arrays), schema=schema)

    def write(samples: Iterable[Sample], mode: str) -> None:
        reader = arrow.RecordBatchReader.from_batches(schema, _batches(samples, batch))
        limits = {"max_bytes_per_file": task.shard_bytes}
        lance.write_dataset(reader, at, schema=schema, mode=mode, **limits)

    def turn() -> None:
        if task.first:
            write(task.samples(), "create")
            return
        old = task.old()
        if old:
            listed = ", ".join(f"'{key}'" for key in old)
            lance.dataset(at).delete(f"key IN ({listed})")
        if task.picks.added or task.picks.changed:
            write(task.new(), "append")

    return turn


def _batches(samples: Iterable[Sample], batch: Callable[[list[Sample]], Any]) -> Iterator[Any]:
    rows: list[Sample] = []
    for sample in samples:
        rows.append(sample)
        if len(rows) == _ROWS:
            yield batch(rows)
            rows = []
    if rows:
        yield batch(rows)


PEERS: Mapping[str, Callable[[Task], Turn]] = {
    "webdataset": webdataset_turn,
    "MosaicML Streaming": streaming_turn,
    "DVC": dvc_turn,
    "Lance": lance_turn,
}
"""What makes a turn of each; making it is not part of its time."""

AGAIN = ("webdataset", "MosaicML Streaming")
"""Those that write everything again, into an empty folder."""

PACKAGES = {
    "webdataset": "webdataset",
    "MosaicML Streaming": "mosaicml-streaming",
    "DVC": "dvc",
    "Lance": "pylance",
}


def run(request: Mapping[str, Any]) -> dict[str, float]:
    """Let a peer do its work once, to the disk."""
    turn = PEERS[request["peer"]](Task(request))
    read_before = _read_bytes()
    with watched() as peak:
        start, cpu_start = perf_counter(), process_time()
        turn()
        os.sync()
        seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "read_bytes": _read_bytes() - read_before,
        "peak_bytes": status_bytes("VmHWM"),
        "own_peak_bytes": peak.bytes,
    }


def _read_bytes() -> float:
    """Bytes that this process has read by calls, all threads together."""
    try:
        found = re.search(r"rchar:\s*(\d+)", Path("/proc/self/io").read_text())
    except OSError:
        return float("nan")
    return float(found[1]) if found else float("nan")


if __name__ == "__main__":
    answer(run, PACKAGES)
