"""What PyTorch and torchdata read of a version: keys, batch by batch."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

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
    batches = data.torch("train", **OPTIONS).loader()
    found["threads"] = [keys(batches), keys(batches)]
    batches = data.torch("train", workers=2, **OPTIONS).loader()
    found["processes"] = [keys(batches), keys(batches)]
    dataset = data.torch("train", **OPTIONS)
    plain = DataLoader(dataset, batch_size=None, num_workers=2)
    found["counted"] = counted(data)
    found["set_epoch"] = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        found["set_epoch"].append(keys(plain))
    return found


def left(data: larder.readers.data.Data) -> dict[str, Any]:
    """What several iterations have, some of which are left after so many batches."""
    options: dict[str, dict[str, Any]] = {
        "0": {},
        "1": {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "spawn"},
        "2": {"num_workers": 2},
        "3": {"num_workers": 3, "persistent_workers": True},
    }

    def iterations(batches: Any) -> list[list[list[str]]]:
        return [keys(islice(batches, stop)) for stop in (None, 2, None, 5, 6, 1, None)]

    found = {"loader": iterations(data.loader("train", **OPTIONS))}
    for kind in (DataLoader, StatefulDataLoader):
        for workers, given in options.items():
            dataset = data.torch("train", **OPTIONS)
            batches = iterations(kind(dataset, batch_size=None, **given))
            found[f"{kind.__name__} {workers}"] = batches
            assert dataset.batches.epoch == 4
    return found


def resumed(data: larder.readers.data.Data) -> list[list[Any]]:
    """An epoch that is stopped after some batches, and goes on with other workers."""
    found = []
    for stop, before, after in [(0, 0, 2), (1, 2, 0), (2, 3, 1), (3, 1, 2), (4, 2, 3)]:
        batches = data.torch("train", **OPTIONS).loader(before)
        delivered = keys(batch for _, batch in zip(range(stop), batches, strict=False))
        state = json.loads(json.dumps(batches.state_dict()))
        again = data.torch("train", **OPTIONS).loader(after)
        again.load_state_dict(state)
        found.append([delivered + keys(again), keys(again)])
    return found


def numbered(data: larder.readers.data.Data) -> dict[str, Any]:
    """The map-style dataset."""
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
    for wrong in (True, 1.9, "3"):
        try:
            data.torch_samples("train")[wrong]  # type: ignore[index]
        except TypeError:
            found.append("TypeError")
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


def after_counting(dataset: BatchDataset) -> list[int]:
    """The batches of an epoch after one of which all batches were taken, but not the end."""
    numbers = []
    for workers in (0, 2):
        batches = iter(dataset)
        for _ in range(len(dataset)):
            next(batches)
        numbers.append(sum(1 for _ in DataLoader(dataset, batch_size=None, num_workers=workers)))
    return numbers


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


def mixed(data: larder.readers.data.Data) -> list[list[list[str]]]:
    """Two epochs of a mix, read by threads, and by workers that go on with a state."""

    def made(workers: int) -> Any:
        loaders = [data.loader(split, **OPTIONS, columns=["key"]) for split in ("train", "plain")]
        mix = larder.mix(zip(loaders, (2, 1), strict=True), batches=7, by="sample")
        return BatchDataset(mix).loader(workers)

    threads, workers, others = made(0), made(2), made(3)
    wanted = keys(threads) + keys(threads)
    delivered = keys(workers) + keys(islice(workers, 3))
    others.load_state_dict(json.loads(json.dumps(workers.state_dict())))
    return [wanted, delivered + keys(others)]


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


def counted(data: larder.readers.data.Data) -> list[list[list[str]]]:
    """Two epochs of which no more is taken than there is."""
    epochs = []
    batches = data.torch("train", **OPTIONS).loader(2)
    for _ in range(2):
        steps = iter(batches)
        epochs.append(keys(next(steps) for _ in range(len(batches))))
    return epochs


def main(url: str) -> dict[str, Any]:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    warnings.filterwarnings("ignore", message="This DataLoader will create")  # more than cores
    warnings.filterwarnings("ignore", message=".set_vital. is deprecated")  # torchdata calls it
    data = larder.open(url)
    batch = next(iter(data.torch("plain", **PICTURES).loader(2)))
    return {
        "orders": orders(data),
        "left": left(data),
        "resumed": resumed(data),
        "numbered": numbered(data),
        "refused": refused(data),
        "after_counting": after_counting(data.torch("train", **OPTIONS)),
        "skipped": skipped(data),
        "mixed": mixed(data),
        **tensors(data),
        "batch": {name: described(value) for name, value in batch.items()},
    }


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
