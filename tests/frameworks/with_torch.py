"""What PyTorch and torchdata read of a version: keys, batch by batch."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import torch
from torch.utils.data import DataLoader

import larder
from larder.errors import LarderError, ObjectError
from larder.readers.torch import BatchDataset

OPTIONS: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 7}
SKIPPING = larder.Reading(on_error="skip")
PICTURES: dict[str, Any] = {**OPTIONS, "decode": True, "size": 6}


def keys(batches: Iterable[dict[str, Any]]) -> list[list[str]]:
    return [list(batch["key"]) for batch in batches]


def orders(data: larder.readers.data.Data) -> dict[str, Any]:
    """The same two epochs, whatever reads them; the parent has read before workers start."""
    loader = data.loader("train", **OPTIONS)
    epochs = [keys(loader), keys(loader)]
    found: dict[str, Any] = {"wanted": epochs}
    for method, workers in [("fork", 1), ("fork", 3), ("forkserver", 2), ("spawn", 2)]:
        dataset = data.torch("train", **OPTIONS)
        with closing(dataset.batches.read(range(1))) as first:
            next(first)
        batches = dataset.loader(workers, multiprocessing_context=method)
        found[f"{method} {workers}"] = [keys(batches), keys(batches)]
    dataset = data.torch("train", **OPTIONS)
    plain = DataLoader(dataset, batch_size=None, num_workers=2)
    found["set_epoch"] = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        found["set_epoch"].append(keys(plain))
    return found


INDEXES: list[Any] = [
    *(4, -1, True, 1.0, torch.tensor(4), torch.tensor(True), torch.tensor([3, 1]), 22),
    *([0, -1], [torch.tensor(0), torch.tensor(-1)], slice(-2, None), [True, False]),
]


def keys_at(reader: Any, index: Any) -> Any:
    """Keys of what a reader has at an index, or the name of its error."""
    try:
        read = reader[index]
    except (IndexError, TypeError) as error:
        return type(error).__name__
    several = read if isinstance(read, list) else [read]
    return [each["key"] if isinstance(each, dict) else each.key for each in several]


def numbered(data: larder.readers.data.Data) -> dict[str, Any]:
    samples = data.torch_samples("train", decode=True, size=6)
    found: dict[str, Any] = {
        "length": len(samples),
        "last": samples[len(samples) - 1]["key"],
        "without": sorted(samples[1]),
    }
    for method in ("fork", "forkserver", "spawn"):
        pictures = data.torch_samples("train", transforms={"png": len, "json": len})
        assert pictures[0]["png"] > 0
        plain = DataLoader(
            pictures, 5, num_workers=1, multiprocessing_context=method, collate_fn=list
        )
        found[method] = [[sample["key"] for sample in batch] for batch in plain]
    readers = samples, data.samples_of("train")
    found["indexes"] = {
        repr(index): [keys_at(each, index) for each in readers] for index in INDEXES
    }
    batch = next(iter(DataLoader(data.torch_samples("plain", decode=True, size=6), batch_size=3)))
    found["batch"] = {name: described(value) for name, value in batch.items()}
    return found


def tensor_of(part: bytes) -> torch.Tensor:
    """Of a shape that all samples have; one of them fails."""
    if part == b"[1]":
        raise KeyError("it is a list")
    return torch.zeros(2, 3, dtype=torch.bfloat16)


def tensors(data: larder.readers.data.Data) -> dict[str, Any]:
    """What functions return is one tensor of a batch, also where a sample is skipped."""
    options = {**OPTIONS, "columns": ["json"], "transforms": {"json": tensor_of}}
    batches = data.torch("lists", **options, reading=SKIPPING)
    with_workers = [described(batch["json"]) for batch in batches.loader(1)]
    return {"tensors": with_workers, "failed": batches.batches.skipped.count}


def described(value: Any) -> Any:
    return [str(value.dtype), *value.shape] if isinstance(value, torch.Tensor) else value


def refused(data: larder.readers.data.Data) -> list[str]:
    found = []
    dataset = data.torch("train", **OPTIONS)
    for call in (
        lambda: dataset.loader(2, persistent_workers=True),
        lambda: dataset.load_state_dict({"format": "another"}),
        lambda: data.torch("train", **{**OPTIONS, "seed": 8}).load_state_dict(dataset.state_dict()),
        lambda: dataset.loader(2, in_order=False),
        lambda: dataset.loader(batch_size=4),
        lambda: dataset.set_epoch(True),
        lambda: dataset.set_epoch(-1),
        lambda: moved(dataset),
        lambda: next(iter(DataLoader(dataset, batch_size=2, num_workers=1))),
        lambda: lost(data),
        lambda: over(data),
        lambda: data.torch("train", reading=larder.Reading(pin=True), **OPTIONS),
    ):
        try:
            call()
        except LarderError as error:
            found.append(error.code)
    return found


def over(data: larder.readers.data.Data) -> None:
    """Go back to an epoch that was over when the state was taken."""
    first, second = (data.torch("train", **OPTIONS) for _ in range(2))
    batches = iter(first.loader())
    for _ in range(len(first)):
        next(batches)
    second.load_state_dict(first.state_dict())
    second.set_epoch(0)


def lost(data: larder.readers.data.Data) -> None:
    """Batches that a worker makes, but cannot send."""
    transforms = {"png": lambda part: sys.stderr}
    for _ in data.torch("plain", **OPTIONS, transforms=transforms).loader(2):
        pass


def moved(dataset: BatchDataset) -> None:
    """Go on with an iteration after the epoch was set."""
    batches = iter(dataset.loader(2))
    next(batches)
    dataset.set_epoch(3)
    next(batches)


def odd_refused(part: Any) -> Any:
    if len(part) % 2:
        raise ObjectError("sample.undecodable", "odd", where=str(len(part)))
    return part


def skipped(data: larder.readers.data.Data) -> list[Any]:
    """What the training process knows of samples that were skipped, in two epochs."""
    options = {**OPTIONS, "batch_size": 6}  # the last batch has 4, of which at most 2 are bad
    counts = []
    for workers in (0, 1, 2):
        functions = {"json": odd_refused}
        dataset = data.torch("train", **options, reading=SKIPPING, transforms=functions)
        batches = dataset.loader(workers)
        for _ in range(2):
            for _ in batches:
                pass
            failures = dataset.batches.skipped
            counts.append([failures.count, len(failures.shown)])
    return counts


def main(url: str) -> dict[str, Any]:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more than cores
    warnings.filterwarnings("ignore", message=".set_vital. is deprecated")  # torchdata calls it
    data = larder.open(url)
    batch = next(iter(data.torch("plain", **PICTURES).loader(2)))
    return {
        "orders": orders(data),
        "numbered": numbered(data),
        "refused": refused(data),
        "skipped": skipped(data),
        **tensors(data),
        "batch": {name: described(value) for name, value in batch.items()},
    }


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
