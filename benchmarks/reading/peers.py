"""Readers of others, each turn in a process of its own: ``python -m benchmarks.reading.peers``.

Imports nothing of Larder, so that any Python with the peers' packages can run it; see
benchmarks/requirements-read.txt. What is imported is not part of a turn's time. Credentials and the
endpoint come from the environment.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.harness import CPU, SECONDS, answer

WEBDATASET, CONNECTOR = "webdataset", "s3torchconnector"
MDS, LITDATA, SPDL, DATALOADER = "MosaicML Streaming", "LitData", "SPDL", "torch DataLoader"
KERAS = "Keras"

PACKAGES = {
    WEBDATASET: "webdataset",
    CONNECTOR: "s3torchconnector",
    MDS: "mosaicml-streaming",
    LITDATA: "litdata",
    SPDL: "spdl-core",
    DATALOADER: "torch",
    KERAS: "keras",
}

BATCH = 64
SIZE = 224

Decode = Callable[[bytes], Any]

Samples = Iterable[bytes]
"""The image of each sample, encoded."""


def decoded(image: bytes) -> Any:
    """The square in the middle of an image as an array of 224 x 224 pixels, by Pillow."""
    from PIL import Image

    with Image.open(io.BytesIO(image)) as opened:
        opened.draft("RGB", (SIZE, SIZE))
        picture = opened.convert("RGB")
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    resized = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
    return import_module("numpy").asarray(resized)


def webdataset_samples(request: Mapping[str, Any]) -> Any:
    """Shards one after the other, from files or through curl, as its documentation shows."""
    wds = import_module("webdataset")
    urls = [f"pipe:curl -s -f '{url}'" if "://" in url else url for url in request["shards"]]
    return wds.WebDataset(urls, shardshuffle=False, empty_check=False).map(_jpg)


def _jpg(sample: Mapping[str, bytes]) -> bytes:
    return sample["jpg"]


def connector_samples(request: Mapping[str, Any]) -> Iterator[bytes]:
    connector = import_module("s3torchconnector")
    dataset = connector.S3IterableDataset.from_prefix(
        request["prefix"],
        region=os.environ["AWS_REGION"],
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        s3client_config=connector.S3ClientConfig(force_path_style=True),
    )
    for item in dataset:
        with tarfile.open(fileobj=item, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member)
                if content is not None and member.name.endswith(".jpg"):
                    yield content.read()


def mds_samples(request: Mapping[str, Any], decode: Decode = bytes) -> Any:
    """From ``mds``, a folder or a URL; what it downloads is below ``scratch``."""
    streaming = import_module("streaming")
    folder = request["mds"]
    remote = (
        {"remote": folder, "local": request["scratch"]} if "://" in folder else {"local": folder}
    )

    class Images(streaming.StreamingDataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: int) -> Any:
            return decode(super().__getitem__(index)["image"])

    return Images(**remote, shuffle=False, batch_size=BATCH)


def litdata_samples(request: Mapping[str, Any], decode: Decode = bytes) -> Any:
    litdata = import_module("litdata")
    # It has no option for servers without TLS, which its library for S3 refuses by default.
    import_module("litdata.streaming.downloader")._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    endpoint = {"endpoint_url": os.environ.get("AWS_ENDPOINT_URL")}
    remote = {"storage_options": endpoint, "cache_dir": request["scratch"]}
    folder = request["litdata"]

    class Images(litdata.StreamingDataset):  # type: ignore[misc, name-defined]
        def __getitem__(self, index: Any) -> Any:
            return decode(super().__getitem__(index)["image"])

    return Images(folder, shuffle=False, **(remote if "://" in folder else {}))


def stream(request: Mapping[str, Any]) -> dict[str, float]:
    """All samples in order, in this process; seconds to the 64th, and to the last."""
    samples = STREAMS[request["peer"]]
    _import(request["peer"])
    start, first, count = perf_counter(), 0.0, 0
    for _ in samples(request):
        count += 1
        if count == BATCH:
            first = perf_counter() - start
    _check(count, request)
    return {SECONDS: perf_counter() - start, "first": first}


STREAMS: Mapping[str, Callable[[Mapping[str, Any]], Samples]] = {
    WEBDATASET: webdataset_samples,
    CONNECTOR: connector_samples,
    MDS: mds_samples,
    LITDATA: litdata_samples,
}


class Decoded:
    """Decodes what another dataset reads, item by item."""

    def __init__(self, read: Callable[[int], bytes], length: int) -> None:
        self._read = read
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return decoded(self._read(index))


class Files:
    def __init__(self, folder: str) -> None:
        self._paths = sorted(str(path) for path in Path(folder).rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self._paths)

    def __call__(self, index: int) -> bytes:
        with open(self._paths[index], "rb") as file:
            return file.read()


def batches(request: Mapping[str, Any]) -> Iterable[Any]:
    """Batches of decoded images by two workers, or by SPDL's two threads."""
    peer, workers = request["peer"], request["workers"]
    if peer == SPDL:
        return spdl_batches(request)
    data = import_module("torch.utils.data")
    loader = data.DataLoader
    if peer == WEBDATASET:
        dataset = webdataset_samples(request).map(decoded)
    elif peer == MDS:
        dataset = mds_samples(request, decoded)
    elif peer == LITDATA:
        loader = import_module("litdata").StreamingDataLoader
        dataset = litdata_samples(request, decoded)
    else:
        files = Files(request["files"])
        dataset = Decoded(files, len(files))
    return loader(dataset, batch_size=BATCH, num_workers=workers)  # type: ignore[no-any-return]


def spdl_batches(request: Mapping[str, Any]) -> Iterator[Any]:
    numpy, pipeline = import_module("numpy"), import_module("spdl.pipeline")
    files = Files(request["files"])
    workers = request["workers"]
    built = (
        pipeline.PipelineBuilder()
        .add_source(range(len(files)))
        .pipe(Decoded(files, len(files)).__getitem__, concurrency=workers)
        .aggregate(BATCH)
        .pipe(numpy.stack)
        .add_sink(4)
        .build(num_threads=workers + 1)
    )
    with built.auto_stop():
        yield from built


def decode(request: Mapping[str, Any]) -> dict[str, float]:
    """An epoch of decoded batches: seconds, and seconds of CPU of all its processes."""
    _import(request["peer"])
    if request["peer"] != SPDL:
        import_module("torch.utils.data")
    start, cpu, count = perf_counter(), _cpu_seconds(), 0
    for batch in batches(request):
        count += len(batch)
    _check(count, request)
    return {SECONDS: perf_counter() - start, CPU: _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    times = os.times()
    return process_time() + times.children_user + times.children_system


def _check(count: int, request: Mapping[str, Any]) -> None:
    if count != request["samples"]:
        raise RuntimeError(f"{request['peer']}: {count} samples instead of {request['samples']}")


_MODULES = {
    WEBDATASET: ("webdataset",),
    CONNECTOR: ("s3torchconnector",),
    MDS: ("streaming",),
    LITDATA: ("litdata",),
    SPDL: ("spdl.pipeline", "numpy"),
    DATALOADER: ("torch.utils.data", "numpy"),
}


def _import(peer: str) -> None:
    for name in (*_MODULES[peer], "PIL.Image"):
        import_module(name)


def make(request: Mapping[str, Any]) -> dict[str, float]:
    """Write the files as MDS or LitData want them, in shards of the same size."""
    images = Files(request["files"])
    out, shard_bytes = request["out"], request["shard_bytes"]
    if request["peer"] == MDS:
        writer_of = import_module("streaming").MDSWriter
        with writer_of(out=out, columns={"image": "bytes"}, size_limit=shard_bytes) as writer:
            for index in range(len(images)):
                writer.write({"image": images(index)})
    else:
        optimize = import_module("litdata").optimize
        indices = list(range(len(images)))
        optimize(
            fn=_Item(images),
            inputs=indices,
            output_dir=out,
            chunk_bytes=shard_bytes,
            num_workers=1,
        )
    return {}


class _Item:
    def __init__(self, images: Files) -> None:
        self._images = images

    def __call__(self, index: int) -> dict[str, bytes]:
        return {"image": self._images(index)}


TURNS = {"stream": stream, "decode": decode, "make": make}


def run(request: Mapping[str, Any]) -> Mapping[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        return TURNS[request["turn"]]({"scratch": scratch, **request})


if __name__ == "__main__":
    answer(run, PACKAGES)
