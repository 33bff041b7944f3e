"""The rows of readers for PyTorch, TensorFlow and Keras, in the form of a loader for `Scene`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.oracle.lab import Asked
from tests.oracle.rows import MIX, SINGLE

NAMES = ("image", "label")
FRAMEWORKS = {
    **SINGLE,
    "place": ("directory",),
    "consumer": ("torch", "torch workers", "plain", "tf", "keras"),
    "fork": ("no",),
}
OF_MIX = {name: MIX[name] for name in ("form", "batch", "by", "length")}
FRAMEWORK_MIX = {**FRAMEWORKS, **OF_MIX, "consumer": ("torch", "torch workers", "tf", "keras")}


@dataclass(frozen=True)
class AskedOf(Asked):
    """A row that is read with a framework."""

    def loader(self, rank: int, world: int, workers: Any, place: str | None = None) -> Any:
        kind = self.row["consumer"]
        of_torch = workers or 0 if kind == "torch workers" else 0
        loader = super().loader(rank, world, 0 if of_torch else workers, place)
        others: dict[str, Any] = {"tf": TensorFlow, "keras": Keras}
        return others[kind](loader) if kind in others else Torch(loader, kind, of_torch)


class Torch:
    """A DataLoader of PyTorch, with the tensors as arrays."""

    def __init__(self, loader: Any, kind: str, workers: int) -> None:
        from torch.utils.data import DataLoader

        from larder.readers.torch import BatchDataset

        self._dataset = BatchDataset(loader)
        counts: Any = self._dataset.loader(num_workers=workers)
        self._batches = counts
        if kind == "plain":
            self._batches, counts = DataLoader(self._dataset, batch_size=None), self._dataset
        self.state_dict, self.load_state_dict = counts.state_dict, counts.load_state_dict

    def __iter__(self) -> Iterator[Any]:
        return map(as_arrays, self._batches)

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def epoch(self) -> int:
        return self._dataset.batches.epoch

    @property
    def batches(self) -> int:
        return self._dataset.batches.batches


def as_arrays(batch: Any) -> Any:
    """A batch with arrays in place of tensors, which share their memory."""
    if isinstance(batch, dict):
        return {name: as_arrays(value) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [as_arrays(value) for value in batch]
    return batch.numpy() if hasattr(batch, "numpy") else batch


class _Counting:
    """What has no state of its own: batches are counted, and skipped to go on."""

    def __init__(self, loader: Any) -> None:
        self._loader, self._done, self._length = loader, 0, len(loader)

    def __len__(self) -> int:
        return self._length

    def state_dict(self) -> int:
        return self._done

    def load_state_dict(self, state: int) -> None:
        self._done = state
        self._loader.skip(state)

    @property
    def epoch(self) -> int:
        return self._done // self._length

    @property
    def batches(self) -> int:
        return self._done % self._length


class TensorFlow(_Counting):
    """A tf.data.Dataset of the columns image and label."""

    def __iter__(self) -> Iterator[Any]:
        from larder.readers.tf import dataset

        for image, label in dataset(self._loader, columns=NAMES).prefetch(2):
            self._done += 1
            yield {"image": image.numpy(), "label": label.numpy()}


class Keras(_Counting):
    """What a model sees that Keras fits for three epochs, with Larder's callback."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._seen: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        self._seen = self._seen or iter(self._fitted())
        for batch in self._seen:
            self._done += 1
            yield batch

    def _fitted(self) -> list[Any]:
        import keras

        from larder.readers.keras import BatchSequence

        seen: list[Any] = []

        class Seeing(keras.Model):  # type: ignore[misc]
            def train_step(self, data: Any) -> Any:
                seen.append({name: each.numpy() for name, each in zip(NAMES, data, strict=True)})
                return {"loss": 0.0}

        sequence = BatchSequence(self._loader, columns=NAMES)
        model = Seeing()
        model.compile(run_eagerly=True, jit_compile=False)
        options = {"initial_epoch": self.epoch, "epochs": self.epoch + 3, "shuffle": False}
        model.fit(sequence, callbacks=[sequence.callback()], verbose=0, **options)
        return seen
