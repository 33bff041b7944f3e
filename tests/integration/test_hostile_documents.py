"""Whatever stands in a bucket: nothing is written elsewhere or run, no traceback, no memory.

Documents, columns and manifests of published datasets get hostile values, and the digests around
them are right, as those of somebody who may write to the bucket. ``LARDER_HOSTILE`` is the number
of examples: run 100,000 of them after a change of what is read back.
"""

import gc
import io
import json
import os
import random
import shutil
import sys
import tempfile
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from pipeline_lab import Lab, opened, png, write
from required import nightly
from verify_lab import grown_lab, text_lab, verified

import larder
from larder.card.draw import card
from larder.catalog.history import list_versions, list_versions_lines
from larder.catalog.show import show, show_lines
from larder.catalog.stored_dataset import StoredDataset
from larder.catalog.trace import trace, trace_lines
from larder.catalog.usage import usage, usage_lines
from larder.catalog.version_difference import diff
from larder.config.load import load_template
from larder.errors import LarderError
from larder.experiments.consumers.registry import consumer_configs
from larder.jobs import crew, manifests
from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import seal
from larder.pipeline.configs import emit
from larder.versions import layout, omitted
from larder.versions.arrays import (
    HEADER_BYTES,
    array_header,
    read_array,
    read_directory,
    write_archive,
)
from larder.versions.index import BLOCK_ROWS
from tests.support.errors import larder_error
from tests.support.memory import forget
from tests.support.runs import between

CONFIGS = Path(__file__).parents[2] / "configs"
LOT = 200
EXAMPLES = int(os.environ.get("LARDER_HOSTILE", 2_000 if nightly() else 60))
MAX_BYTES = 48 << 20
"""More than any of these operations takes with the datasets as they were published."""

WRITES = ("os.mkdir", "os.rename", "os.link", "os.symlink", "os.truncate", "os.remove", "os.rmdir")
RUNS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")
FOLDERS = ("tmp", "cache", "copy", "download", "kept")
Files = dict[str, bytes]
PWNED = b"pwned"
EARLIER = manifests._folder().resolve()
"""The folder of manifests that earlier tests of this process have downloaded. One that is still
read stays there; once its reader is collected, any later operation may remove it."""


class Watch:
    """What Python writes and runs, seen by an audit hook: which can never be removed."""

    def __init__(self) -> None:
        self._allowed: tuple[str, ...] = ()
        self.seen: list[str] = []
        sys.addaudithook(self._event)

    @contextmanager
    def only(self, *folders: Path) -> Iterator[None]:
        """Note what is run, and what is written elsewhere than in some folders."""
        self.seen.clear()
        self._allowed = tuple(f"{folder}/" for folder in folders)
        try:
            yield
        finally:
            self._allowed = ()

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._allowed:
            return
        if event in RUNS:
            self.seen.append(f"{event} {arguments!r:.200}")
        elif event == "open" and (isinstance(arguments[0], int) or not _writes(arguments[2])):
            return  # a file that is open already, by its number
        elif event in WRITES or event == "open":
            names = [os.fsdecode(each) for each in arguments[:2] if isinstance(each, str | bytes)]
            for name in names[:1] if event == "open" else names:
                # shutil.rmtree gives names with an open folder, as the last argument.
                inside = event in ("os.remove", "os.rmdir") and arguments[-1] >= 0
                folder = f"/proc/self/fd/{arguments[-1]}" if inside else os.path.dirname(name)
                path = os.path.join(os.path.realpath(folder), os.path.basename(name), "")
                if not (path.startswith(self._allowed) or "__pycache__" in path):
                    self.seen.append(f"{event} {path!r}")


def _writes(flags: int) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) and not flags & os.O_TMPFILE


watch = Watch()


@contextmanager
def enclosed(folder: Path) -> Iterator[Path]:
    """Within, temporary files and downloads are below a folder, and memory is measured."""
    (folder / "tmp").mkdir(parents=True)
    manifests.forget()
    places = {"LARDER_CACHE_DIR": str(folder / "cache"), "MPLCONFIGDIR": str(folder / "tmp")}
    with (
        mock.patch.object(tempfile, "tempdir", str(folder / "tmp")),
        mock.patch.object(manifests, "_folder", return_value=folder / "tmp"),
        # Whatever sizes documents state, no other process starts: the watch would not see it.
        mock.patch.object(crew, "_START_SECONDS", float("inf")),
        mock.patch.dict(os.environ, places),
        mock.patch.object(os, "fsync"),
    ):
        tracemalloc.start(1)
        yield folder
        tracemalloc.stop()


@contextmanager
def bounded(operation: str, *folders: Path, **options: Any) -> Iterator[None]:
    """Fail if a block runs a program, writes elsewhere, or takes much memory."""
    tracemalloc.reset_peak()
    before_bytes, _ = tracemalloc.get_traced_memory()
    with between(**options), watch.only(EARLIER, *folders):
        yield
    _, peak_bytes = tracemalloc.get_traced_memory()
    assert not watch.seen, (operation, watch.seen)
    assert peak_bytes - before_bytes < MAX_BYTES, (operation, peak_bytes)


def in_lots(check: Callable[[st.DataObject], None], lot: int = LOT) -> None:
    """Check all examples in lots: Hypothesis finds a much longer run inconsistent."""
    gc.collect()  # what tests before it have left removes its files
    manifests.forget()  # also those whose readers were only now collected

    @settings(
        max_examples=lot,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def checked(data: st.DataObject) -> None:
        check(data)

    first = random.getrandbits(32) if nightly() else 0
    for number in range(-(-EXAMPLES // LOT)):
        seed(first + number)(checked)()


@pytest.fixture(scope="module")
def area(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with enclosed(tmp_path_factory.mktemp("hostile") / "a/b/c/d/e") as folder:
        yield folder


@pytest.fixture(scope="module")
def labs(area: Path) -> list[tuple[Lab, Files]]:
    """Grown, with shards in tar, a cache and omitted rows in a file; and in Parquet, unlabelled."""
    with mock.patch.object(omitted, "MAX_INLINE_RANGES", 0):
        one = grown_lab(area / "tar", cache={"records": "decoded"}, validate="decode")
    other = text_lab(area / "parquet", shards={"format": "parquet", "bytes": 2_000})
    third = text_lab(area / "tfrecord", shards={"format": "tfrecord", "bytes": 2_000})
    card(third.settings(), "latest")  # matplotlib looks for fonts once
    return [(lab, _files(lab.folder)) for lab in (one, other, third)]


def _files(folder: Path) -> Files:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


ODD = st.sampled_from([0, 1, -1, -2, 7, 2**31 - 1, 2**31, 10**12, 2**62, 2**63 - 1, -(2**63)])
SIZES = ODD | st.integers(-(2**63), 2**63 - 1)


def texts(area: Path, original: str) -> st.SearchStrategy[str]:
    """Texts that lead elsewhere, or are something to a shell, YAML or a reader."""
    elsewhere = "/".join([".."] * 9)
    return st.sampled_from(
        [
            *("", ".", "..", "/", "a/b", "../x", f"{elsewhere}/pwned", f"{area}/pwned", "~/x"),
            *("x\0y", "a\\..\\b", "$(touch pwned)", "`touch pwned`", "a;touch pwned", "é" * 200),
            *("a" * 300, "a\nb: c", "{0..99999999}", "{a,b}", "%2e%2e/x", "CON", "-rf", "f" * 32),
            *(f"{original}/{elsewhere}/pwned", f"{original}\n", f"{original}::pipe:touch pwned"),
            *(f"pipe:touch pwned #{original}", original.upper(), original[:-1], f"/{original}"),
            *(original.replace("segments/", "segments/../../"), original.replace("000", "{0..9}")),
            *(original.replace("/", "/x/../"), original.replace("-", "/../")),
        ]
    ) | st.text("ab0/.\\\n\0{}:$é-", max_size=9)


def hostile(area: Path, value: Any, data: st.DataObject) -> Any:
    """Something else in the place of a value of a document."""
    if isinstance(value, str) and data.draw(st.integers(0, 5)):
        return data.draw(texts(area, value))
    if isinstance(value, int) and data.draw(st.integers(0, 5)):
        return data.draw(SIZES)
    if isinstance(value, list) and value and data.draw(st.booleans()):
        return data.draw(st.sampled_from([value[:-1], value * 2, value[::-1], [value]]))
    others: list[Any] = [None, True, 0.5, "", [], {}, [[]], {"a": 0}, 10**400, "train"]
    return data.draw(st.sampled_from(others))


def places(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: list[tuple[Any, Any]] = []
    if isinstance(plain, dict | list):
        items = list(plain.items() if isinstance(plain, dict) else enumerate(plain))
    return [each for key, item in items for each in [(*path, key), *places(item, (*path, key))]]


def inside(plain: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        plain = plain[key]
    return plain


def change_document(area: Path, plain: dict[str, Any], data: st.DataObject) -> None:
    *path, last = data.draw(st.sampled_from(places(plain)))
    inner = inside(plain, tuple(path))
    what = data.draw(st.integers(0, 7))
    if what == 0 and isinstance(last, str):
        inner[data.draw(texts(area, last))] = inner.pop(last)
    elif what == 1:
        del inner[last]
    else:
        inner[last] = hostile(area, inner[last], data)


def change_array(area: Path, raw: bytes, data: st.DataObject) -> bytes:
    array = read_array(raw).copy()
    what = data.draw(st.integers(0, 9))
    if what == 0:
        return raw[: data.draw(st.integers(0, len(raw)))] + b"\0" * data.draw(st.integers(0, 40))
    if what == 1:
        shape = data.draw(
            st.sampled_from([(10**12,), (-1,), (2**62, 4), (), (1, len(array)), (0,)])
        )
        descr = data.draw(st.sampled_from(["|O", "|S0", "<i8", "|V1", "<f8", array.dtype.str]))
        text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
        head = b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little")
        return head + text.ljust(HEADER_BYTES - 11) + b"\n" + raw[HEADER_BYTES:]
    if what == 2:
        array = data.draw(st.sampled_from([array[:-1], np.repeat(array, 2), array[::-1].copy()]))
    for _ in range(data.draw(st.integers(1, 2)) if len(array) else 0):
        row = data.draw(st.integers(0, len(array) - 1))
        field = data.draw(st.sampled_from(array.dtype.names)) if array.dtype.names else ...
        inner = array[field]
        if inner.dtype.kind == "S":
            text = data.draw(texts(area, inner[row].decode())).encode(errors="replace")
            wide = array.dtype.descr if field is not ... else f"S{len(text) or 1}"
            if field is not ...:
                kinds = {field: f"S{max(len(text), 1)}"}
                wide = [(name, kinds.get(name, kind)) for name, kind, *_ in wide]
            array = array.astype(wide)
            array[field][row] = text
        elif inner.dtype.kind in "iu":
            limits = np.iinfo(inner.dtype)
            inner[row] = min(max(data.draw(SIZES), limits.min), limits.max)
        else:
            inner[row] = data.draw(st.binary(max_size=32))
    return array_header(array.dtype, len(array)) + array.tobytes()


def change_table(area: Path, raw: bytes, data: st.DataObject) -> bytes:
    table = pq.read_table(io.BytesIO(raw))
    rows = table.to_pylist()
    if not rows:
        return raw
    row = data.draw(st.sampled_from(rows))
    names = [path for path in places(row) if path[0] != "modified"]
    *path, last = data.draw(st.sampled_from(names))
    inner = inside(row, tuple(path))
    inner[last] = hostile(area, inner[last], data)
    target = io.BytesIO()
    with suppress(pa.ArrowException, OverflowError, TypeError, UnicodeEncodeError, ValueError):
        changed = pa.Table.from_pylist(rows, table.schema)
        pq.write_table(changed, target, compression="zstd", write_page_checksum=True)
        return target.getvalue()
    return raw


def seal_again(files: Files, path: str, plain: dict[str, Any]) -> None:
    plain.pop("self_sha256", None)
    with suppress(ValueError, UnicodeEncodeError):
        files[path] = seal(plain)


def put_named(files: Files, plain: dict[str, Any]) -> None:
    """Put what a changed document names now, as a bucket may have any key."""
    for file in (inside(plain, path) for path in places(plain)):
        is_file = isinstance(file, dict) and {"path", "role"} <= set(file)
        if is_file and isinstance(file["path"], str) and file["path"] not in files:
            files[file["path"]] = PWNED
            file.update(bytes=len(PWNED), sha256=sha256_hex(PWNED))
    version = plain.get("version")
    if isinstance(version, str) and layout.version_key(version) not in files:
        document = next(data for path, data in files.items() if path.endswith("/version.json"))
        seal_again(files, layout.version_key(version), json.loads(document) | {"id": version})


def rewrite(files: Files, path: str, data: bytes) -> None:
    """Replace a file that documents name, and make their digests right."""
    files[path] = data
    for key in [each for each in files if each.endswith(("segment.json", "version.json"))]:
        plain = json.loads(files[key])
        for file in plain["files"]:
            if file["path"] == path:
                file.update(bytes=len(data), sha256=sha256_hex(data))
                seal_again(files, key, plain)


def arrays_of(archive: bytes) -> Files:
    members = read_directory(archive, len(archive))
    return {name: archive[each.offset : each.offset + each.bytes] for name, each in members.items()}


def archive_of(arrays: Files, area: Path) -> bytes:
    paths = {}
    for number, (name, data) in enumerate(arrays.items()):
        paths[name] = area / "tmp" / f"array-{number}"
        paths[name].write_bytes(data)
    write_archive(area / "tmp" / "archive", paths)
    return (area / "tmp" / "archive").read_bytes()


def change_archive(area: Path, raw: bytes, data: st.DataObject) -> bytes:
    """Change an array of an index, or its end, which says where they are."""
    if not data.draw(st.integers(0, 7)):
        changed = bytearray(raw)
        for _ in range(data.draw(st.integers(1, 4))):
            changed[-data.draw(st.integers(1, 700))] = data.draw(st.integers(0, 255))
        return bytes(changed)
    arrays = arrays_of(raw)
    name = data.draw(st.sampled_from(list(arrays)))
    if not data.draw(st.integers(0, 15)):
        arrays[data.draw(st.sampled_from([*arrays, "x", "../x"]))] = arrays.pop(name)
        return archive_of(arrays, area)
    arrays[name] = change_array(area, arrays[name], data)
    if name in ("rows", "parts", "keys"):
        check_blocks(arrays)
    return archive_of(arrays, area)


def check_blocks(arrays: Files) -> None:
    """Make the checksums of the blocks of a changed array right, as far as there are items."""
    try:
        rows, parts, keys = (read_array(arrays[name]) for name in ("rows", "parts", "keys"))
        blocks = read_array(arrays["blocks"]).copy()
        for number, block in enumerate(blocks):
            lot = rows[number * BLOCK_ROWS :][:BLOCK_ROWS]
            starts, ends = (block["part_start"], block["key_start"]), lot[-1]
            block["rows_crc32c"] = google_crc32c.value(lot.tobytes())
            block["parts_crc32c"] = google_crc32c.value(
                parts[starts[0] : ends["part_end"]].tobytes()
            )
            block["keys_crc32c"] = google_crc32c.value(keys[starts[1] : ends["key_end"]].tobytes())
    except (ValueError, TypeError, IndexError, EOFError):
        return
    arrays["blocks"] = array_header(blocks.dtype, len(blocks)) + blocks.tobytes()


DOCUMENTS = ("version.json", "segment.json", "latest.json", "conditions.json", "/runs/")


def change(area: Path, files: Files, data: st.DataObject) -> None:
    kinds = [*DOCUMENTS, ".npz", ".npz", ".npz", ".npy", ".parquet"]
    kinds = [kind for kind in kinds if any(kind in path for path in files)]
    kind = data.draw(st.sampled_from(kinds))
    path = data.draw(st.sampled_from(sorted(path for path in files if kind in path)))
    if path.endswith(".json"):
        plain = json.loads(files[path])
        for _ in range(data.draw(st.integers(1, 2))):
            change_document(area, plain, data)
        put_named(files, plain)
        seal_again(files, path, plain)
        return
    changes = {".npz": change_archive, ".npy": change_array, ".parquet": change_table}
    rewrite(files, path, changes[kind](area, files[path], data))


def attempt(call: Callable[[], Any]) -> None:
    try:
        call()
        return
    except LarderError as error:
        text = str(error)
    assert len(text.splitlines()) == 1, text


def read(address: str, area: Path) -> None:
    data = larder.open(address, cache_dir=area / "cache")
    for split in data.splits:
        attempt(lambda split=split: data.shards(split))
        attempt(lambda split=split: list(data.samples(split)))
        attempt(lambda split=split: data.samples_of(split, check="once")[:1])
        attempt(lambda split=split: data.samples_of(split, keep=area / "kept")[:1])
        attempt(lambda split=split: data.cache(split)[:1])
        attempt(lambda split=split: next(iter(data.loader(split, batch_size=2))))
        attempt(lambda split=split: next(iter(data.loader(split, batch_size=2, shuffle=True))))


def copied(address: str, area: Path) -> None:
    data = larder.open(address, cache_dir=area / "cache")
    attempt(lambda: data.copy_to(area / "copy"))
    attempt(lambda: data.download(area / "download"))


CONSUMERS = ("determined", "json", "croissant", "kubernetes", "kubeflow", "slurm")


def emitted(lab: Lab, kind: str) -> None:
    name = consumer_configs(kind).TEMPLATE
    template = load_template(CONFIGS, name) if name else {}
    emit(lab.settings(cluster={"consumer": {"kind": kind}}, template=template), "latest")


def looked_at(lab: Lab) -> None:
    place = StoredDataset("d", lab.settings().cluster)
    attempt(lambda: list_versions_lines(list_versions(place)))
    attempt(lambda: usage_lines(usage(place)))
    attempt(lambda: show_lines(show(place, "latest")))
    attempt(lambda: trace_lines(trace(place, "latest", "a/00", str(lab.folder / "parts"))))
    for folder in sorted((lab.folder / "versions").iterdir()):
        attempt(lambda name=folder.name: list(diff(place, name, keys=True)["keys"]))


READING: dict[str, Callable[[str, Path], Any]] = {
    "read": read,
    "copy": copied,
    "read a bucket": lambda address, area: (read(address, area), copied(address, area)),
}
OPERATIONS: dict[str, Callable[[Lab], Any]] = {
    "verify": lambda lab: verified(lab),
    "repair": lambda lab: verified(lab, repair=True),
    "prepare": lambda lab: lab.prepare(),
    "grow": lambda lab: (write(str(lab.source), {"a/zzz.png": png(9)}), lab.prepare()),
    "compact": lambda lab: lab.compact(),
    "card": lambda lab: card(lab.settings(), "latest"),
    "look": looked_at,
    **{f"emit {kind}": (lambda lab, kind=kind: emitted(lab, kind)) for kind in CONSUMERS},
}


@pytest.mark.push
@pytest.mark.timeout(24 * 3600 if EXAMPLES > 1_000 else 600)
def test_nothing_in_a_bucket_is_trusted(area, labs):
    in_lots(partial(check, area, labs))


def check(area: Path, labs: list[tuple[Lab, Files]], data: st.DataObject) -> None:
    published, files = labs[data.draw(st.integers(0, len(labs) - 1))]
    changed = dict(files)
    change(area, changed, data)
    operation = data.draw(st.sampled_from([*READING, *OPERATIONS]))
    name = uuid.uuid4().hex
    work, bucket = area / name, f"memory://{name}/larder/d"
    lab = replace(published, storage=str(work / "local"), output=work / "out")
    allowed = [area / each for each in FOLDERS]
    try:
        if operation in OPERATIONS:
            allowed.append(work)
            shutil.copytree(str(published.source), work / "source")
            lab = replace(lab, source=str(work / "source"))
        if operation != "read a bucket":
            shutil.copytree(published.folder, lab.folder)
            changed = {path: data for path, data in changed.items() if data != files.get(path)}
        with opened(bucket if operation == "read a bucket" else lab.folder) as store:
            for path, content in changed.items():
                with suppress(LarderError):  # a name that the store does not have
                    store.put(path, content)
        with bounded(operation, *allowed):
            if operation in OPERATIONS:
                attempt(lambda: OPERATIONS[operation](lab))
            else:
                address = bucket if operation == "read a bucket" else str(lab.folder)
                attempt(lambda: READING[operation](address, area))
    finally:
        forget(name)
        for folder in (work, *(area / each for each in FOLDERS if each != "tmp")):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.push
@pytest.mark.parametrize("keep", [False, True])
def test_a_sample_in_a_shard_of_another_split_is_damage(area, labs, keep):
    lab, published = labs[0]
    files = dict(published)
    path = next(path for path in sorted(files) if Path(path).name.startswith("rows-"))
    arrays = arrays_of(files[path])
    rows = read_array(arrays["rows"]).copy()
    rows["shard"][rows["shard"] == rows["shard"][len(rows) // 4]] = rows["shard"][-1]
    arrays["rows"] = array_header(rows.dtype, len(rows)) + rows.tobytes()
    check_blocks(arrays)
    rewrite(files, path, archive_of(arrays, area))
    name = uuid.uuid4().hex
    write(bucket := f"memory://{name}/larder/d", files)
    samples = [
        larder.open(bucket, cache_dir=area / name).samples_of(
            split, keep=area / f"{name}-kept" if keep else None
        )
        for split in lab.fields["splits"]
    ]
    with larder_error("damage.manifest" if keep else "object.missing"):
        [list(each) for each in samples]
    forget(name)
