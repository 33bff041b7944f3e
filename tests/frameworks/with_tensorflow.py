"""What TensorFlow and Keras read of a version."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf

import larder
from larder.errors import ConfigError
from larder.readers.augment import RandomResizedCrop

OPTIONS: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 7}
PICTURES: dict[str, Any] = {**OPTIONS, "decode": True, "size": 6}


def keys(dataset: Any) -> list[list[str]]:
    return [
        [key.decode() for key in batch["key"].tolist()] for batch in dataset.as_numpy_iterator()
    ]


def spec(dataset: Any) -> Any:
    described = tf.nest.map_structure(
        lambda each: [each.dtype.name, *each.shape.as_list()], dataset.element_spec
    )
    return described if isinstance(described, dict) else list(described)


def refusal(call: Any) -> str:
    try:
        call()
    except ConfigError as error:
        return f"{error.code} {error.where}"
    return ""


def of_other_sizes(key: str) -> Any:
    """An array as long as those of the first batch only there."""
    number = int(key[-2:])
    return np.zeros(2 if number in (0, 3, 6, 1) else number, np.uint8)


def later_refusal(data: larder.readers.data.Data, **options: Any) -> str:
    dataset = data.tf("sizes", batch_size=4, **options)
    try:
        list(dataset)
    except tf.errors.OpError as error:
        return str(error.message)
    return ""


def validated(data: larder.readers.data.Data) -> list[list[list[str]]]:
    """What several iterations have that end early, and the whole epoch after them."""
    dataset = data.tf("train", **OPTIONS)
    return [keys(dataset.take(count)) for count in (3, 3, len(data.loader("train", **OPTIONS)))]


def main(url: str) -> dict[str, Any]:
    data = larder.open(url)
    loader = data.loader("train", **OPTIONS)
    wanted = [[list(batch["key"]) for batch in loader] for _ in range(2)]
    dataset, by_processes = (data.tf("train", workers=each, **OPTIONS) for each in (0, 2))
    pictures = data.tf("plain", columns=("png", "label"), **PICTURES)
    parts = next(iter(data.tf("train", **OPTIONS))).items()
    samples = {each.key: each for each in data.samples("train")}
    whole = {name: values.numpy().tolist() for name, values in parts}
    return {
        "wanted": wanted,
        "by_processes": [keys(by_processes), keys(by_processes)],
        "spec": spec(dataset),
        "pictures": spec(pictures),
        "bytes": all(
            [samples[key.decode()].parts.get(ext, b"") for key in whole["key"]] == whole[ext]
            for ext in ("png", "json")
            if ext in whole
        ),
        "refused": [
            refusal(lambda: data.tf("train", columns=("jpg",), **OPTIONS)),
            refusal(lambda: data.tf("sizes", **OPTIONS, decode=True)),
            refusal(lambda: data.keras("plain", columns=("jpg",), **OPTIONS)[0]),
            later_refusal(data, columns=("key",), transforms={"key": of_other_sizes}),
            later_refusal(data),
        ],
        "validated": validated(data),
        "policies": [
            data.tf("train", rank=0, world=world, **OPTIONS)
            .options()
            .experimental_distribute.auto_shard_policy.name
            for world in (1, 2)
        ],
        "mapped": spec(
            data.tf("plain", columns=("image", "label"), map=RandomResizedCrop(6), **OPTIONS)
        ),
        "cardinality": [int(dataset.cardinality()), len(loader)],
    }


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
