"""Caching a tf.data.Dataset, and reading it shuffled: Larder's decorators, YogaDL and ArrayRecord.

It needs TensorFlow, and leaves out what else is not installed; how to install all is in
benchmarks/requirements-cache.txt. All of it runs in the Python that is given.

Elements are arrays of uint8: 20,000 of 10,000 bytes, and 4,000 images of 224 x 224 x 3. All figures
are seconds for all of them, the less the better: those of a clock, and those of CPU.

- build: a dataset that is in memory already is cached. The file is not synced by YogaDL, nor by
  ArrayRecord, which takes the arrays without TensorFlow.
- first opening: what is done once for all epochs and processes of a machine; ours compares the
  digest of the file.
- tf.data: shuffled, in batches of 64. YogaDL's own tf.data.Dataset, batched.
- torch: a DataLoader without workers, of the same batches. YogaDL's own tf.data.Dataset, one
  element at a time.
- numpy: batches of 64 of a loader, without TensorFlow. YogaDL's generator, one array at a time;
  ArrayRecord with grain, shuffled and batched.
- numpy, stacked: the same, but what YogaDL's generator yields is stacked to batches of 64, too.
- write: every byte of the arrays written to a file, and synced; nobody can build faster.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import larder
from benchmarks.harness import (
    ROOT,
    Contender,
    Figure,
    alternate,
    benchmark_parser,
    installed,
    run,
    say,
)

SHAPES = {"10 kB": ((10_000,), 20_000), "224 x 224 x 3": ((224, 224, 3), 4_000)}
PEERS = ("YogaDL", "grain", "write")
CLOCKS = {"": perf_counter, ", CPU": process_time}
WORKS = {
    "build": "build",
    "first opening": "open_first",
    "tf.data": "tf_batches",
    "torch": "torch_batches",
    "numpy": "batches",
    "numpy, stacked": "stacked",
}
BATCH = 64
DISTINCT = 64


class Ours:
    """Larder's decorators."""

    def __init__(self, folder: Path, make: Callable[[], Any], arrays: Callable[[], Any]) -> None:
        self._options: Any = {"storage": folder / "ours", "cache_dir": folder / "local"}
        self._functions = {"tf": make, "numpy": arrays}
        self.opened: dict[str, Any] = {}  # and stays so, as YogaDL's file does

    def open(self, name: str, **options: Any) -> Any:
        decorate = larder.cache_train_dataset(name, "v1", **self._options, **options)
        return decorate(self._functions[name])()

    def build(self) -> None:
        shutil.rmtree(self._options["storage"] / "tf", ignore_errors=True)
        self.open("tf")

    def open_first(self) -> None:
        self.opened["tf"] = self.open("tf")

    def tf_batches(self) -> Any:
        return self.open("tf", shuffle=True).batch(BATCH)

    def torch_batches(self) -> Any:
        return import_module("larder.readers.torch").BatchDataset(self.batches()).loader()

    def batches(self) -> Any:
        return self.open("numpy", shuffle=True, batch_size=BATCH)

    stacked = batches


class YogaDL:
    """Its serializer, stream and tf.data.Dataset, without its storage, which locks around them.

    A process can open a file once, and never closes it: each build has its own.
    """

    def __init__(self, folder: Path, make: Callable[[], Any]) -> None:
        self._folder = folder
        self._builds = 0
        self._make = make
        self._tensorflow = import_module("yogadl.tensorflow")
        self._open = import_module("yogadl.dataref").LMDBDataRef
        self._reference: Any = None

    def build(self) -> None:
        for old in self._folder.glob("cache-*"):
            old.unlink()
        self._builds += 1
        self._tensorflow.serialize_tf_dataset_to_lmdb(self._make(), self._path, None)

    def open_first(self) -> None:
        self._reference = self._open(self._path)

    @property
    def _path(self) -> Path:
        return self._folder / f"cache-{self._builds}.mdb"

    def _stream(self) -> Any:
        return self._reference.stream(shuffle=True, shuffle_seed=1)

    def tf_batches(self) -> Any:
        return self._tensorflow.make_tf_dataset(self._stream()).batch(BATCH)

    def torch_batches(self) -> Any:
        return self._tensorflow.make_tf_dataset(self._stream()).as_numpy_iterator()

    def batches(self) -> Any:
        return self._stream().iterator_fn()

    def stacked(self) -> Iterator[Any]:
        arrays = self.batches()
        while some := [*islice(arrays, BATCH)]:
            yield np.stack(some)


class Grain:
    """ArrayRecord, an array a group, as its random access wants it; read with grain's defaults."""

    def __init__(self, folder: Path, arrays: Callable[[], Any], shape: tuple[int, ...]) -> None:
        self._path = str(folder / "records.array_record")
        self._arrays = arrays
        self._shape = shape
        self._writer = import_module("array_record.python.array_record_module").ArrayRecordWriter
        self._grain = import_module("grain")

    def build(self) -> None:
        writer = self._writer(self._path, "group_size:1,uncompressed")
        for array in self._arrays():
            writer.write(array.tobytes())
        writer.close()

    def _array(self, record: bytes) -> Any:
        return np.frombuffer(record, np.uint8).reshape(self._shape)

    def batches(self) -> Any:
        source = self._grain.sources.ArrayRecordDataSource(self._path)
        records = self._grain.MapDataset.source(source).shuffle(seed=1)
        return records.map(self._array).batch(BATCH).to_iter_dataset()


def turn(contender: Any) -> Mapping[str, float]:
    """Build, and read all of it in every way that there is."""
    seconds: dict[str, float] = {}
    for name, method in WORKS.items():
        work = getattr(contender, method, None)
        if work and (name != "torch" or installed({"PyTorch": "torch"})):
            seconds |= measured(name, work)
    return seconds


def measured(name: str, work: Callable[[], Any]) -> dict[str, float]:
    """The seconds of some work, by each clock, and of reading the batches that it returns."""
    starts = [clock() for clock in CLOCKS.values()]
    batches = work()
    for _ in () if batches is None else batches:
        pass
    ends = [clock() for clock in CLOCKS.values()]
    pairs = zip(CLOCKS, starts, ends, strict=True)
    return {name + clock: end - start for clock, start, end in pairs}


def written(folder: Path, arrays: Callable[[], Any]) -> Mapping[str, float]:
    path = folder / "plain"

    def write() -> None:
        with path.open("wb") as file:
            for array in arrays():
                file.write(array)
            file.flush()
            os.fsync(file.fileno())

    seconds = measured("build", write)
    path.unlink()
    return seconds


def compare(name: str, folder: Path, rounds: int, scale: float) -> Iterator[Figure]:
    """The figures of arrays of one shape."""
    shape, count = SHAPES[name]
    count = max(BATCH, int(count * scale))
    distinct = np.random.default_rng(0).integers(0, 256, (DISTINCT, *shape), dtype=np.uint8)
    tf = import_module("tensorflow")

    def arrays() -> Iterator[Any]:
        return (distinct[number % DISTINCT] for number in range(count))

    def make() -> Any:
        one = tf.data.Dataset.from_tensor_slices(distinct)
        return one.repeat(-(-count // DISTINCT)).take(count)

    ours = Ours(folder, make, arrays)
    ours.opened["numpy"] = ours.open("numpy")
    contenders: dict[str, Contender] = {"ours": lambda: turn(ours)}
    if installed({"YogaDL": "yogadl"}):
        yogadl = YogaDL(folder, make)
        contenders["YogaDL"] = lambda: turn(yogadl)
    if len(installed({"ArrayRecord": "array_record", "grain": "grain"})) == 2:
        grain = Grain(folder, arrays, shape)
        contenders["grain"] = lambda: turn(grain)
    contenders["write"] = lambda: written(folder, arrays)
    medians = alternate(contenders, rounds)
    for what in WORKS:
        for clock in CLOCKS:
            key = what + clock
            if key in medians["ours"]:
                peers: dict[str, float | None] = {
                    peer: medians[peer][key] for peer in PEERS if key in medians.get(peer, ())
                }
                yield Figure(f"{what}, {name}{clock}", medians["ours"][key], peers)


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    if flags.peers_python != sys.executable:
        yield from measured_by(flags, folder)
        return
    if not installed({"TensorFlow": "tensorflow-cpu"}):
        how = "benchmarks/requirements-cache.txt says how; or give --peers-python"
        sys.exit(f"TensorFlow is not installed: {how}")
    for name in SHAPES:
        say(name)
        place = folder / name
        place.mkdir()
        yield from compare(name, place, flags.rounds, flags.files_scale)
        shutil.rmtree(place)


def measured_by(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    """The figures of this benchmark in another Python."""
    options = [f"--rounds={flags.rounds}", f"--files-scale={flags.files_scale}"]
    command = [flags.peers_python, "-m", "benchmarks.cache", "--json", *options]
    command.append(f"--directory={folder}")
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    for name, case in json.loads(done.stdout)["cases"].items():
        yield Figure(name, case["ours"], case["peers"])


PARSER = benchmark_parser("cache", __doc__, rounds=5, peers=True)

if __name__ == "__main__":
    run(PARSER, measure)
