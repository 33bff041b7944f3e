"""What others pack with, in a process of its own: ``python -m benchmarks.packing.peers``.

Imports nothing of Larder, so that any Python with the peers' packages can run it; see
benchmarks/requirements-shards.txt.
What is imported is not part of a turn's time, except by the command of `optimize_all`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.harness import answer

WEBDATASET = "webdataset ShardWriter"
MDS = "MDSWriter"
TENSORFLOW = "TFRecordWriter"
LITDATA = "litdata optimize"

PACKAGES = {
    WEBDATASET: "webdataset",
    MDS: "mosaicml-streaming",
    TENSORFLOW: "tensorflow-cpu",
    LITDATA: "litdata",
}

_NO_COUNT = 10**9

Turn = Callable[[], None]


class Task:
    """One request.

    Args:
        request: ``files``, the folder of the files; ``names``, a file with their names, a line
            each; ``out``, an empty folder; ``shard_bytes``.
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.out: str = request["out"]
        self.shard_bytes: int = request["shard_bytes"]
        self._files = Path(request["files"])
        self._names = Path(request["names"])

    def samples(self) -> Iterator[tuple[str, bytes, int]]:
        """Key without the extension, content and label of each."""
        for name in self._names.read_text().splitlines():
            with open(f"{self._files}/{name}", "rb") as file:
                yield name.removesuffix(".jpg"), file.read(), label_of(name)


def label_of(name: str) -> int:
    """The number of the folder."""
    return int(name[1:9])


def webdataset_turn(task: Task) -> Turn:
    """As webdataset's documentation shows it."""
    writer_of = import_module("webdataset").ShardWriter

    def turn() -> None:
        limits = {"maxsize": task.shard_bytes, "maxcount": _NO_COUNT, "verbose": 0}
        with writer_of(f"{task.out}/bench-train-%06d.tar", **limits) as writer:
            for key, image, label in task.samples():
                writer.write({"__key__": key, "jpg": image, "cls": label})

    return turn


def mds_turn(task: Task) -> Turn:
    """As Streaming's documentation shows it, without compression or hashes."""
    writer_of = import_module("streaming").MDSWriter
    columns = {"key": "str", "image": "bytes", "label": "int"}

    def turn() -> None:
        with writer_of(out=task.out, columns=columns, size_limit=task.shard_bytes) as writer:
            for key, image, label in task.samples():
                writer.write({"key": key, "image": image, "label": label})

    return turn


def tensorflow_turn(task: Task) -> Turn:
    """As TensorFlow's documentation shows it, a file after every ``shard_bytes``."""
    tf = import_module("tensorflow")

    def record(key: str, image: bytes, label: int) -> bytes:
        values = {
            "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
            "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[key.encode()])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=values))
        return bytes(example.SerializeToString())

    def turn() -> None:
        shard, left, writer = 0, 0, None
        for sample in task.samples():
            data = record(*sample)
            if writer is None or len(data) > left:
                if writer is not None:
                    writer.close()
                writer = tf.io.TFRecordWriter(f"{task.out}/bench-train-{shard:05d}.tfrecord")
                shard, left = shard + 1, task.shard_bytes
            writer.write(data)
            left -= len(data)
        if writer is not None:
            writer.close()

    return turn


WRITERS: Mapping[str, Callable[[Task], Turn]] = {
    WEBDATASET: webdataset_turn,
    MDS: mds_turn,
    TENSORFLOW: tensorflow_turn,
}
"""What makes a turn of each that is a writer; making it is not part of its time."""


def sample_of(path: str) -> dict[str, Any]:
    """What `optimize_all` writes of a file."""
    with open(path, "rb") as file:
        content = file.read()
    name = path.rpartition("/")[2]
    return {"key": name.removesuffix(".jpg"), "image": content, "label": label_of(name)}


def optimize_all(files: str, out: str, shard_bytes: int, workers: int) -> None:
    """Pack a folder as litdata's documentation shows it."""
    paths = sorted(f"{folder}/{name}" for folder, _, names in os.walk(files) for name in names)
    import_module("litdata").optimize(
        fn=sample_of, inputs=paths, output_dir=out, chunk_bytes=shard_bytes, num_workers=workers
    )


def sync_files(folder: str) -> None:
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def gnu_tar(request: Mapping[str, Any]) -> dict[str, float]:
    """One archive of the same files, in the same order; needs no package."""
    options = ["--format=ustar", "--no-recursion", "-C", request["files"], "-T", request["names"]]
    command = ["tar", "-cf", f"{request['out']}/all.tar", *options]
    return _timed(lambda: subprocess.run(command, check=True), request["out"])


def run(request: Mapping[str, Any]) -> dict[str, float]:
    """Let a peer do its work once; its seconds, with and without the syncs."""
    return _timed(WRITERS[request["peer"]](Task(request)), request["out"])


def _timed(turn: Callable[[], Any], out: str) -> dict[str, float]:
    start = perf_counter()
    turn()
    unsynced = perf_counter() - start
    sync_files(out)
    return {"synced": perf_counter() - start, "unsynced": unsynced}


if __name__ == "__main__":
    if sys.argv[1:]:
        files, out, shard_bytes, workers = sys.argv[1:]
        optimize_all(files, out, int(shard_bytes), int(workers))
    else:
        answer(run, PACKAGES)
