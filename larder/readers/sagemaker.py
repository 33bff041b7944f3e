"""Channels of a SageMaker training job, as in the config that Larder emitted.

The channel ``larder`` has documents and indexes, and on a file system also all other files. The
shards of a split are in the channels ``SPLIT``, ``SPLIT.2`` and so on, as files or through named
pipes. Source: "How Amazon SageMaker Provides Training Information".
"""

from __future__ import annotations

import io
import json
import os
import re
import select
import struct
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

import google_crc32c
import numpy as np

from larder.config.patterns import expand_braces
from larder.disk import TEMPORARY_PREFIX, disk_errors
from larder.errors import ConfigError, DamageError, FatalError
from larder.readers.access import DatasetAccess
from larder.readers.split import SplitSamples
from larder.samples.indexed import IndexedSample, Sample
from larder.samples.naming import LABEL_EXT
from larder.units import format_count
from larder.versions import layout
from larder.versions.documents import SplitFacts, VersionDocument
from larder.versions.version_copy import check_shards

_CHANNEL = "larder"
_LOT_SAMPLES: Final = 1_024
"""Number of samples looked up in the index at once."""


def _input() -> Path:
    return Path(os.environ.get("SM_INPUT_DIR") or "/opt/ml/input")


def _folder(channel: str) -> Path:
    """Return the folder of a channel; SageMaker's training toolkit sets the variable."""
    return Path(os.environ.get(f"SM_CHANNEL_{channel.upper()}") or _input() / "data" / channel)


def channel_location() -> str | None:
    """Return the location of the only version in the channel ``larder``; None if none or several.

    Searches without and with the prefix of the manifest: SageMaker does not document whether files
    of a manifest keep the prefix.
    """
    folder, document = _folder(_CHANNEL), "*/versions/*/version.json"
    documents = list(folder.glob(document)) or list(folder.rglob(f"larder/{document}"))
    return str(documents[0].parent) if len(documents) == 1 else None


def with_shards(version: VersionDocument, access: DatasetAccess) -> Path | None:
    """Make a dataset root, in a job of SageMaker, that joins the shards in other channels.

    The root is a directory of links. None if the version is in no channel, or its channel has the
    shards.
    """
    root = Path(access.root)
    if _folder(_CHANNEL) not in root.parents:
        return None
    if any((root / layout.shards_prefix(use.id)).is_dir() for use in version.segments):
        return None
    links = access.cache_dir / "sagemaker" / version.id / "larder" / version.dataset
    targets = {path.relative_to(root).as_posix(): path for path in _files(root)}
    for split, facts in version.splits.items():
        check_shards(access.store(), version, split)
        targets |= _shards(split, facts)
    with disk_errors(links):
        for key, target in targets.items():
            _link(links / key, target)
    return links


def _link(link: Path, target: Path) -> None:
    """Make a link, also in place of a link to the folder of an earlier job."""
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    draft = link.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{link.name}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(link)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _shards(split: str, facts: SplitFacts) -> dict[str, Path]:
    """List the shards of a split in its channels, by key; empty if the channels are pipes."""
    folder = _folder(split)
    folders = [folder, *folder.parent.glob(f"{folder.name}.[0-9]*")]
    paths = {path.name: path for each in folders for path in _files(each)}
    keys = [key for pattern in facts.patterns for key in expand_braces(pattern)]
    shards = {key: paths[name] for key in keys if (name := key.rpartition("/")[2]) in paths}
    if shards and len(shards) < len(keys):
        message = f"the channel has {len(shards):,} of {format_count(len(keys), 'shard')}"
        hint = "read its files; larder.open needs all shards, so remove consumer.sharded"
        raise ConfigError("config.path", message, where=str(folder), hint=hint)
    return shards


def pipe_samples(
    version: VersionDocument, index: SplitSamples, epoch: int, wait_seconds: float
) -> Iterator[Sample]:
    split, facts = index.split, version.splits[index.split]
    suffix = facts.patterns[0].rpartition(".")[2] if facts.patterns else ""
    if suffix not in ("tar", "rec"):
        message = "a pipe is read in the formats webdataset and recordio"
        raise ConfigError("config.invalid_value", message, where=f"split {split}")
    path = _folder(split).with_name(f"{split}_{epoch}")
    channel = _config("inputdataconfig").get(split, {})
    count = 0
    with _opened(path, wait_seconds) as pipe:
        labelled = bool(version.classes)
        if suffix == "rec":
            samples: Iterator[Sample] = map(_image, _records(pipe))
        elif channel.get("RecordWrapperType") == "RecordIO":
            samples = (
                sample
                for record in _records(pipe)
                for sample in _members(io.BytesIO(record), labelled=labelled)
            )
        else:
            samples = _members(pipe, labelled=labelled)
        try:
            for sample in _compared(samples, index, path, keyed=suffix == "tar"):
                count += 1
                yield sample
        except (tarfile.TarError, struct.error, ArithmeticError, ValueError) as error:
            message = f"the pipe is damaged: {error}"
            raise DamageError("damage.record", message, where=str(path)) from None
    if count != facts.samples and channel.get("S3DistributionType") != "ShardedByS3Key":
        message = f"the pipe has {count:,} of {format_count(facts.samples, 'sample')}"
        raise DamageError("damage.size", message, where=str(path))


def _opened(path: Path, wait_seconds: float) -> BinaryIO:
    """Open a pipe and wait for its first bytes; a plain open waits for a writer for ever."""
    with disk_errors(path, reading=True):
        pipe = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    if not poll.poll(1000 * wait_seconds):
        pipe.close()
        message = f"nobody has written to the pipe for {wait_seconds:g} seconds"
        hint = "each epoch has a pipe that is read once: give its number, and check the channel"
        raise FatalError("run.timeout", message, where=str(path), hint=hint)
    os.set_blocking(pipe.fileno(), True)
    return pipe


def _compared(
    samples: Iterable[Sample], index: SplitSamples, path: Path, *, keyed: bool
) -> Iterator[Sample]:
    """Yield the samples, compared with the index; whole shards may come in any order.

    Records have no keys, so several shards may begin alike: each candidate shard is followed until
    it differs.
    """
    ends = np.cumsum([0, *index.shard_samples])
    shards: dict[object, list[tuple[int, int]]] = {}
    for shard, entry in zip(pairwise(ends.tolist()), index.indexed(ends[:-1]), strict=True):
        shards.setdefault(_identity(entry, keyed=keyed), []).append(shard)
    walks: list[Iterator[IndexedSample]] = []
    for sample in samples:
        identity = _identity(sample, keyed=keyed)
        entries = [next(walk, None) for walk in walks]
        over = None in entries or not walks
        walks = [
            walk
            for walk, entry in zip(walks, entries, strict=True)
            if entry is not None and _identity(entry, keyed=keyed) == identity
        ]
        if not walks and over:
            starts = shards.get(identity, [])
            walks = [_entries(index, start + 1, stop) for start, stop in starts]
            if len(starts) == 1:
                del shards[identity]
        if not walks:
            message = "the sample is not the one that the index has there"
            raise DamageError("damage.record", message, where=f"{path}: {sample.key}")
        yield sample
    if walks and None not in [next(walk, None) for walk in walks]:
        raise DamageError("damage.size", "the pipe ends within a shard", where=str(path))


def _entries(index: SplitSamples, start: int, stop: int) -> Iterator[IndexedSample]:
    for first in range(start, stop, _LOT_SAMPLES):
        yield from index.indexed(np.arange(first, min(first + _LOT_SAMPLES, stop)))


def _identity(sample: Sample | IndexedSample, *, keyed: bool) -> object:
    """Return key, label and the checksums of the parts; a record has no key."""
    if isinstance(sample, Sample):
        crcs = {ext: google_crc32c.value(data) for ext, data in sample.parts.items()}
    else:
        crcs = {part.ext: part.crc32c for part in sample.parts}
    if keyed:
        return sample.key, sample.label, tuple(sorted(crcs.items()))
    if sample.label is not None:
        crcs.pop(LABEL_EXT, None)
    return sample.label, *crcs.values()


def resource_config() -> dict[str, Any]:
    """Return the instances of the training job and the current instance; empty elsewhere."""
    return _config("resourceconfig")


def _config(name: str) -> dict[str, Any]:
    path = _input() / "config" / f"{name}.json"
    with disk_errors(path, reading=True), suppress(FileNotFoundError):
        config: dict[str, Any] = json.loads(path.read_bytes())
        return config
    return {}


def _members(stream: BinaryIO, *, labelled: bool) -> Iterator[Sample]:
    """Yield the samples of concatenated tar archives: members with the same key."""
    parts = ((*_named(name), data) for name, data in _files_of_tars(stream))
    for key, members in groupby(parts, key=lambda part: part[0]):
        contents = {ext: data for _, ext, data in members}
        label = int(contents["cls"]) if labelled and "cls" in contents else None
        yield Sample(key, label, contents)


_BLOCK_BYTES = 512
_PAX = re.compile(rb"\d+ ([^=\n]+)=([^\n]*)\n")


def _files_of_tars(stream: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of files in tars that `larder.shards.formats.tar` wrote.

    tarfile reads concatenated archives too, but skips damaged headers.
    """
    extended: dict[bytes, bytes] = {}
    while header := stream.read(_BLOCK_BYTES):
        if not any(header):  # two such blocks end an archive
            continue
        info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        size = int(extended.get(b"size", info.size))
        data = stream.read(size + -size % _BLOCK_BYTES)
        if len(data) < size + -size % _BLOCK_BYTES:
            raise ValueError("it ends within a member")
        if info.type == tarfile.XHDTYPE:
            extended = dict(_PAX.findall(data[:size]))
            continue
        yield extended.get(b"path", info.name.encode()).decode(), data[:size]
        extended = {}


def _named(name: str) -> tuple[str, str]:
    """Split a name into key and extension, by WebDataset's rule."""
    folder, slash, base = name.rpartition("/")
    stem, _, ext = base.partition(".")
    return folder + slash + stem, ext


_HEAD = struct.Struct("<4sI")
_MAGIC = struct.pack("<I", 0xCED7_230A)
_IMAGE = struct.Struct("<IfQQ")


def _records(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the data of records; pieces that were cut at the magic number are joined with it.

    `larder.shards.formats.recordio` has the format.
    """
    pieces: list[bytes] = []
    while head := stream.read(_HEAD.size):
        magic, word = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0)
        size, flag = word & (1 << 29) - 1, word >> 29
        data = stream.read(size + -size % 4)
        if magic != _MAGIC or len(data) < size:
            raise ValueError("no record of RecordIO is there")
        pieces.append(data[:size])
        if flag in (0, 3):  # whole, or the last piece
            yield _MAGIC.join(pieces)
            pieces = []
    if pieces:
        raise ValueError("it ends within a record")


def _image(record: bytes) -> Sample:
    _, label, number, _ = _IMAGE.unpack_from(record)
    return Sample(str(number), int(label) if label >= 0 else None, {"data": record[_IMAGE.size :]})
