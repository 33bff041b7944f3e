"""Runs sections of docs/how-to/read-in-training.md, against versions in a bucket."""

from __future__ import annotations

import json
import sys
import warnings
from itertools import chain
from typing import Any

import larder


def shape(value: Any) -> list[Any]:
    return [str(value.dtype), *value.shape]


def steps_of(code: str, **names: Any) -> tuple[dict[str, Any], list[Any]]:
    """What the code defines, and what it called ``train_step`` with."""
    steps: list[Any] = []
    names["train_step"] = lambda images, labels: steps.append([shape(images), shape(labels)])
    exec(code, names)
    return names, steps


def of_torch(code: str, version: str) -> Any:
    names, steps = steps_of(code)
    rest = list(names["batches"])
    return {"steps": steps, "rest": len(rest)}


def of_tensorflow(code: str, version: str) -> Any:
    names, steps = steps_of(code)
    keys = [key.decode() for batch, _ in names["rest"] for key in batch.numpy().tolist()]
    return {"steps": steps, "rest": keys}


def of_keras(code: str, version: str) -> Any:
    import keras

    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(9)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    names, _ = steps_of(code, model=model)
    return len(model.history.history["loss"]), len(names["sequence"])


def of_grain(code: str, version: str) -> Any:
    names, _ = steps_of(code)
    dataset = names["dataset"]
    return sorted(label for number in range(len(dataset)) for label in dataset[number].tolist())


def of_records(code: str, version: str) -> Any:
    names, _ = steps_of(code)
    dataset = names["make_train_dataset"](version, 64)
    batches = [batch.numpy().tolist() for batch in dataset]
    return [len(batch) for batch in batches], sorted(chain(*batches))


def of_tars(code: str, version: str) -> Any:
    from torch.utils.data import DataLoader

    names, _ = steps_of(code)
    data = larder.open("s3://team/larder/imagenet@latest")
    dataset = names["dataset_of"](data)
    shards = [url.rpartition("/")[2] for url in data.shards("train")]
    plain = [label for _, label in DataLoader(dataset, batch_size=None)]
    batches = list(names["batches_of"](data, len))
    return {
        "shards": shards,
        "plain": plain,
        "labels": sorted(label for batch in batches for label in batch["label"].tolist()),
        "batches": [len(batch["jpg"]) for batch in batches],
    }


SECTIONS = {
    "PyTorch": of_torch,
    "TensorFlow": of_tensorflow,
    "Keras": of_keras,
    "grain": of_grain,
    "Records of a fixed size": of_records,
    "Tar files of a bucket": of_tars,
}


def main(sections: dict[str, str], version: str) -> dict[str, Any]:
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    return {name: SECTIONS[name](code, version=version) for name, code in sections.items()}


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
