"""Batches that DataLoaders of PyTorch and torchdata read without the dataset's own `loader`."""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from larder.errors import LarderError
from larder.readers.torch import BatchDataset
from tests.support.numbered import NumberedSamples, loader_of


def made(**options: Any) -> BatchDataset:
    return BatchDataset(loader_of(NumberedSamples([9, 9, 9]), batch_size=4, **options))


def keys(batches: Any) -> list[list[str]]:
    return [list(batch["key"]) for batch in batches]


def code_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except LarderError as error:
        return f"{error.code} {error.where}"
    return "none"


def by(dataset: BatchDataset, workers: int, **options: Any) -> dict[str, Any]:
    """An epoch, what is refused then, and the epoch that `set_epoch` goes to."""
    batches: Any = DataLoader(dataset, batch_size=None, num_workers=workers, **options)
    return {
        "first": keys(batches),
        "refused": [
            code_of(call)
            for call in (dataset.state_dict, lambda: dataset.batches, lambda: keys(batches))
        ],
        "set": dataset.set_epoch(1),
        "second": code_of(lambda: keys(batches))
        if "persistent_workers" in options
        else keys(batches),
    }


def resumed(workers: int) -> list[list[str]]:
    one, other = made(), made()
    taken = iter(one.loader())
    next(taken), next(taken)
    other.load_state_dict(one.state_dict())
    return keys(DataLoader(other, batch_size=None, num_workers=workers))


def stateful() -> list[list[str]]:
    """The rest of an epoch after two batches, by torchdata without workers."""
    one, other = (StatefulDataLoader(made(), batch_size=None) for _ in range(2))
    taken = iter(one)
    next(taken), next(taken)
    other.load_state_dict(one.state_dict())
    return keys(other)


def unshared() -> BatchDataset:
    """A dataset made while /dev/shm had no room for its flag."""
    dataset = made()
    dataset._is_uncounted = torch.zeros(1, dtype=torch.bool)
    return dataset


def kinds() -> list[str]:
    one = {"batch_size": None, "num_workers": 1}
    own = {"collate_fn": lambda batch: batch}
    pairs = made(collate=tuple).loader(**own)
    loaders = made().loader(), made().loader(**own), made().loader(num_workers=1)
    plain = DataLoader(made(), batch_size=None), DataLoader(made(), **one, **own)
    return [type(next(iter(each))).__name__ for each in (*loaders, *plain, pairs)]


def main(_: Any) -> dict[str, Any]:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    warnings.filterwarnings("ignore", message=".set_vital. is deprecated")  # torchdata calls it
    loader = made().batches
    left = DataLoader(made(), batch_size=None, num_workers=1)
    next(iter(left))
    return {
        "wanted": [keys(loader), keys(loader)],
        "none": [keys(each) for each in [DataLoader(made(), batch_size=None)] * 2],
        "workers": {
            "fork": by(made(), 2),
            "spawn": by(made(), 1, multiprocessing_context="spawn"),
            "copied": by(pickle.loads(pickle.dumps(made())), 2),
        },
        "kinds": kinds(),
        "persistent": by(made(), 2, persistent_workers=True),
        "resumed": [resumed(0), resumed(2), stateful()],
        "refused": [
            code_of(lambda: keys(left)),
            code_of(lambda: keys(DataLoader(made()))),
            code_of(lambda: list(DataLoader(made(collate=tuple)))),
            code_of(lambda: keys(DataLoader(unshared(), batch_size=None, num_workers=1))),
            code_of(lambda: keys(DataLoader(made(), batch_size=2, num_workers=1))),
            code_of(lambda: keys(StatefulDataLoader(made(), batch_size=None, num_workers=1))),
        ],
    }


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
