"""Whether a packer wrote all samples: their number, their names if it keeps them, some contents."""

from __future__ import annotations

import json
import mmap
import struct
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.packing.bodies import Setting

_SOME = 3
_TFRECORD_FRAME = 16


def check_tar(setting: Setting) -> int:
    """Number of samples in archives, whose names have to be those of the files."""
    names: list[str] = []
    for path in sorted(setting.out.rglob("*.tar")):
        done = subprocess.run(["tar", "-tf", str(path)], check=True, capture_output=True, text=True)
        names += (name for name in done.stdout.splitlines() if name.endswith(".jpg"))
    assert sorted(names) == setting.keys(), "the archives have other members"
    _find_some(setting, setting.out.rglob("*.tar"))
    return len(names)


def check_tfrecord(setting: Setting) -> int:
    """Number of records, by their lengths."""
    files = sorted(setting.out.rglob("*.tfrecord*"))
    _find_some(setting, files)
    return sum(1 for path in files for _ in _records(path))


def check_recordio(setting: Setting) -> int:
    """Number of records, by their list."""
    _find_some(setting, setting.out.rglob("*.rec"))
    lists = setting.out.rglob("*.lst")
    return sum(len(path.read_text().splitlines()) for path in lists)


def check_mds(setting: Setting) -> int:
    """Number of samples in its index."""
    shards = json.loads((setting.out / "index.json").read_text())["shards"]
    _find_some(setting, setting.out.glob("*.mds"))
    return sum(shard["samples"] for shard in shards)


def check_litdata(setting: Setting) -> int:
    """Number of samples in its index."""
    chunks = json.loads((setting.out / "index.json").read_text())["chunks"]
    _find_some(setting, setting.out.glob("*.bin"))
    return sum(chunk["chunk_size"] for chunk in chunks)


def check_parquet(setting: Setting) -> int:
    """Number of rows, and some of their values."""
    rows = 0
    for path in sorted(setting.out.rglob("*-train-*.parquet")):
        file = pq.ParquetFile(path)
        rows += file.metadata.num_rows
        first = next(file.iter_batches(batch_size=1)).to_pylist()[0]
        content = next(value for value in first.values() if isinstance(value, bytes))
        key = next(value for value in first.values() if isinstance(value, str))
        assert content == (setting.files / f"{key}.jpg").read_bytes(), f"{key} differs"
    return rows


CHECKS: Mapping[str, Callable[[Setting], int]] = {
    "tar": check_tar,
    "tfrecord": check_tfrecord,
    "recordio": check_recordio,
    "parquet": check_parquet,
    "mds": check_mds,
    "litdata": check_litdata,
}
"""By kind, what counts the samples of the files in ``setting.out`` and looks at some of them."""


def check_all(kind: str, setting: Setting, count: int) -> None:
    """Refuse the time of a packer that did not write all samples, or wrote others."""
    found = CHECKS[kind](setting)
    assert found == count, f"{kind}: {found:,} samples of {count:,} were written"


def _find_some(setting: Setting, paths: Iterable[Path]) -> None:
    """The contents of the first, a middle and the last file have to be in what was written."""
    keys = setting.keys()
    some = {keys[len(keys) * place // _SOME] for place in range(_SOME)} | {keys[-1]}
    wanted = [(setting.files / key).read_bytes() for key in sorted(some)]
    for path in sorted(paths):
        with path.open("rb") as file:
            if not path.stat().st_size:
                continue
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                wanted = [content for content in wanted if data.find(content) < 0]
    assert not wanted, f"the contents of {len(wanted)} of {len(some)} files were not written"


def _records(path: Path) -> Iterator[int]:
    """The lengths of the records of a file."""
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        while file.tell() < size_bytes:
            (length,) = struct.unpack("<Q", file.read(8))
            yield length
            file.seek(length + _TFRECORD_FRAME - 8, 1)
        assert file.tell() == size_bytes, f"{path.name} is cut off"
