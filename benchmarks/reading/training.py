"""Small training loops over batches, each in a process of its own, for the Python of the peers.

Answers the seconds of an epoch, and those of as many steps that get the same batch every time,
which wait for nothing. What an epoch takes longer is time that the loop waited: for a batch (of
PyTorch also measured, ``next``), for the interpreter lock, or for a core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any

import larder
from benchmarks.harness import SECONDS, answer
from benchmarks.reading import ours, peers
from benchmarks.reading.peers import BATCH, DATALOADER, SIZE

OPTIONS: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "decode": True, "size": SIZE}


def torch_loop(request: Mapping[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """An epoch, and one of a single batch."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    if request["peer"] == DATALOADER:
        loader = peers.batches(request)
    else:
        options = OPTIONS | {"workers": request["ours"]}
        loader = larder.open(request["url"]).torch("train", columns=["image"], **options).loader()

    def images() -> Iterable[Any]:
        return (batch["image"] if isinstance(batch, dict) else batch for batch in loader)

    def train(batches: Iterable[Any]) -> float:
        """The seconds that it waited for a batch."""
        waited, start = 0.0, perf_counter()
        for batch in batches:
            waited += perf_counter() - start
            inputs = batch.permute(0, 3, 1, 2).float() / 255
            loss = nn.functional.cross_entropy(model(inputs), torch.zeros(len(batch)).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            start = perf_counter()
        return waited

    one = torch.zeros(BATCH, SIZE, SIZE, 3, dtype=torch.uint8)
    steps = request["samples"] // BATCH
    return lambda: train(images()), lambda: train([one] * steps)


def keras_loop(request: Mapping[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The same with ``model.fit``."""
    import keras
    import numpy as np

    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 7, strides=4, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ones = np.zeros((BATCH, SIZE, SIZE, 3), np.uint8), np.zeros(BATCH, np.int64)
    steps = request["samples"] // BATCH

    class Same(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return int(steps)

        def __getitem__(self, number: int) -> Any:
            return ones

    options = OPTIONS | {"workers": request["ours"], "transforms": {"key": ours.one_class}}
    sequence = larder.open(request["url"]).keras("train", columns=("image", "key"), **options)
    return lambda: model.fit(sequence, verbose=0), lambda: model.fit(Same(), verbose=0)


LOOPS = {"torch": torch_loop, "keras": keras_loop}


def turn(request: Mapping[str, Any]) -> Mapping[str, float]:
    epoch, alone = LOOPS[request["loop"]](request)
    alone()  # compiles, and starts threads
    epoch()  # starts processes
    measured: list[float] = []
    found: dict[str, float] = {}
    for call in (alone, epoch, alone):
        start = perf_counter()
        waited = call()
        measured.append(perf_counter() - start)
        if call is epoch and isinstance(waited, float):
            found["next"] = waited / measured[-1]
    steps = (measured[0] + measured[2]) / 2
    waiting = max(0.0, 1 - steps / measured[1])
    return {"alone": steps, SECONDS: measured[1], "waiting": waiting, **found}


if __name__ == "__main__":
    answer(turn, {})
