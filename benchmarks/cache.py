"""Caching a tf.data.Dataset, and reading it shuffled: Larder's decorators, YogaDL and ArrayRecord.

::

    python -m benchmarks.cache [--peers-python PYTHON] [--runs 5] [--files-scale 1]
        [--directory DIR] [--json]

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

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import larder
from benchmarks.harness import (
    Contender,
    Figure,
    alternate,
    arguments_parser,
    document,
    installed,
    say,
    settle,
    table,
)

SHAPES = {"10 kB": ((10_000,), 20_000), "224 x 224 x 3": ((224, 224, 3), 4_000)}
TARGETS = {
    "10 kB": {"build": 1 / 2.5, "tf.data": 1 / 12, "torch": 1 / 100, "numpy": 1 / 4},
    "224 x 224 x 3": {"build": 1 / 1.5, "tf.data": 1 / 4.5, "torch": 1 / 15, "numpy": 1 / 2},
}
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


def compare(name: str, folder: Path, runs: int, scale: float) -> Iterator[Figure]:
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
    medians = alternate(contenders, runs, before=settle)
    for what in WORKS:
        target = TARGETS[name].get(what)
        for clock in CLOCKS:
            key = what + clock
            if key in medians["ours"]:
                peers: dict[str, float | None] = {
                    peer: medians[peer][key] for peer in PEERS if key in medians.get(peer, ())
                }
                reach = target if "YogaDL" in peers else None
                yield Figure(f"{what}, {name}{clock}", medians["ours"][key], peers, reach)


def main(argv: list[str] | None = None) -> None:
    """Compare, and print a table, or the document."""
    parser = arguments_parser((__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--peers-python", default="", help="the Python that has TensorFlow and the peers"
    )
    given = parser.parse_args(argv)
    if given.peers_python:
        flags = ["--runs", str(given.runs), "--files-scale", str(given.files_scale)]
        flags += ["--directory", given.directory] if given.directory else []
        flags += ["--json"] if given.json else []
        command = [given.peers_python, "-m", "benchmarks.cache", *flags]
        sys.exit(subprocess.run(command, cwd=Path(__file__).parents[1], check=False).returncode)
    if not installed({"TensorFlow": "tensorflow-cpu"}):
        how = "benchmarks/requirements-cache.txt says how; or give --peers-python"
        sys.exit(f"TensorFlow is not installed: {how}")
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        figures: list[Figure] = []
        for number, name in enumerate(SHAPES):
            place = Path(folder) / str(number)
            place.mkdir()
            say(name)
            figures += compare(name, place, given.runs, given.files_scale)
            shutil.rmtree(place)
    if given.json:
        print(document("cache", figures))
        return
    rows = [
        (
            figure.name,
            f"{figure.ours:.3f} s",
            *(f"{figure.peers[peer]:.3f} s" if peer in figure.peers else "" for peer in PEERS),
            f"{1 / figure.ratio:.1f}x" if figure.ratio and figure.target else "",
            f"{1 / figure.target:.1f}x" if figure.target else "",
        )
        for figure in figures
    ]
    print(table(["", "ours", *PEERS, "beside YogaDL", "reach"], rows))


if __name__ == "__main__":
    main(sys.argv[1:])
