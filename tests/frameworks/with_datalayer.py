"""What TensorFlow reads of caches of its own datasets."""

from __future__ import annotations

import json
import logging
import os
import runpy
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import larder
from benchmarks.cache import compare
from larder.errors import LarderError
from larder.samples.decoders import Builder
from larder.samples.indexed import Sample

Dataset = tf.data.Dataset
Pair = namedtuple("Pair", ["one", "other"])


def typed(dtype: Any) -> Callable[[], Any]:
    return lambda: Dataset.range(5).map(lambda x: (tf.cast(x, dtype), {"x": tf.cast([x], dtype)}))


CASES: dict[str, Callable[[], Any]] = {
    **{
        dtype.name: typed(dtype)
        for dtype in (tf.bool, tf.bfloat16, tf.float32, tf.int64, tf.uint8, tf.complex128)
    },
    "range": lambda: Dataset.range(5),
    "unknown rank": lambda: Dataset.from_generator(lambda: range(4), output_types=tf.int64),
    "unknown shapes": lambda: Dataset.from_generator(
        lambda: [np.ones(n) for n in range(4)], output_types=tf.float32
    ),
    "strings": lambda: Dataset.from_tensor_slices(["a", "\u00e9", "", b"\0x\0"]),
    "lists of strings": lambda: Dataset.from_tensor_slices([["a", "bb"], ["", "c"]]),
    "more strings": lambda: Dataset.range(4).map(lambda x: tf.fill([x], "s")),
    "empty arrays": lambda: Dataset.range(4).map(lambda x: (tf.zeros([0, 3]), {"b": x})),
    "ragged": lambda: Dataset.range(4).map(lambda x: {"z": tf.zeros([x, 3]), "a": x}),
    "taken apart": lambda: Dataset.range(9).batch(2).map(lambda x: x).unbatch(),
    "batches": lambda: Dataset.range(9).batch(2, drop_remainder=True),
}


def failing() -> Any:
    def generate() -> Iterator[int]:
        yield 1
        raise RuntimeError("of the function")

    return Dataset.from_generator(generate, output_types=tf.int64)


def changed() -> Any:
    return Dataset.range(5).map(lambda x: tf.cast(x, tf.int32))


def tensors(make: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: Dataset.range(3).map(make)


REFUSED: dict[str, Callable[[], Any]] = {
    "endless": lambda: Dataset.range(3).repeat(),
    "empty": lambda: Dataset.range(0),
    "none": lambda: None,
    "ragged tensor": tensors(lambda x: tf.RaggedTensor.from_row_splits([1, 2], [0, 1, 2])),
    "sparse": tensors(lambda x: {"s": tf.sparse.from_dense([x])}),
    "datasets": lambda: Dataset.range(3).window(2),
    "named": tensors(lambda x: Pair(x, x)),
    "too large": tensors(lambda x: tf.zeros([1 << 40])),
    "range": changed,
}


def train(name: str, make: Callable[[], Any], **options: Any) -> Any:
    return larder.cache_train_dataset(name, "v1", file_bytes=1, **options)(make)()


def same(name: str, make: Callable[[], Any]) -> bool:
    """Whether a cached dataset, built and read again, is what the function returns."""
    wanted = make()
    for _ in range(2):
        cached = train(name, make)
        pairs = list(zip(cached.as_numpy_iterator(), wanted.as_numpy_iterator(), strict=True))
        tf.nest.map_structure(np.testing.assert_array_equal, *map(list, zip(*pairs, strict=True)))
        if cached.element_spec != wanted.element_spec:
            return False
    return True


def refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except LarderError as error:
        return error.code
    return ""


def numbers(dataset: Any) -> list[int]:
    return [int(each) for each in dataset]


def passes(dataset: Any) -> dict[str, Any]:
    """Epochs of a dataset of numbers, some of which end early, or are several at once."""
    return {
        "cut": numbers(dataset.take(2)),
        "epochs": [numbers(dataset) for _ in range(2)],
        "repeated": numbers(dataset.repeat(2).batch(4).unbatch()),
        "at once": [[int(a), int(b)] for a, b in Dataset.zip((dataset, dataset))],
    }


def batches(open_again: Callable[[], Any]) -> dict[str, Any]:
    """Batches of two, beside those that TensorFlow makes of the elements."""
    dataset, other = open_again(), open_again()
    kinds = [{}, {"drop_remainder": True}]
    both = [(dataset.batch(2, **kind), Dataset.batch(other, 2, **kind)) for kind in kinds]
    (taken, _), (dropped, _) = both
    return {
        "taken": [batch.tolist() for batch in taken.as_numpy_iterator()],
        "apart": numbers(other),
        "dropped": [batch.tolist() for batch in dropped.as_numpy_iterator()],
        "second": numbers(other),
        "same specs": all(one.element_spec == other.element_spec for one, other in both),
        "counts": [int(one.cardinality()) for one, _ in both],
    }


def batch_of_none(dataset: Any) -> str:
    """How a batch size of 0 is refused; one of 2.5 is, too."""
    try:
        with suppress(TypeError):
            return str(dataset.batch(2.5))
        dataset.batch(0)
    except tf.errors.InvalidArgumentError as error:
        return str(error)
    return ""


def page() -> dict[str, Any]:
    """What the first example of docs/how-to/caching-functions.md leaves."""
    text = (Path(__file__).parents[2] / "docs/how-to/caching-functions.md").read_text()
    path = Path(os.environ["LARDER_CACHE"]) / "example.py"
    path.write_text(text.partition("```python\n")[2].partition("```")[0])
    return runpy.run_path(str(path))


def built() -> list[list[Any]]:
    """The elements of a builder that returns a tf.data.Dataset of samples."""

    def make(samples: Iterator[Sample]) -> Any:
        lengths = (len(sample.parts["txt"]) for sample in samples)
        dataset = Dataset.from_generator(lambda: lengths, output_types=tf.int64)
        return dataset.map(lambda x: {"x": x, "text": tf.strings.as_string(x)}).prefetch(2)

    samples = (Sample(f"{n}", None, {"txt": bytes(n)}) for n in range(4))
    elements = Builder("make", make, {}, is_divided=False).elements(samples, (0, 1))
    return [[int(each["x"]), each["text"].decode()] for each in elements]


def main(storage: str) -> None:
    os.environ["LARDER_CACHE"], os.environ["LARDER_CACHE_DIR"] = storage, f"{storage}/local"
    texts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("larder").addHandler(handler)
    answer: dict[str, Any] = {
        "same": {name: same(name, make) for name, make in CASES.items()},
        "logged": texts,
        "refused": {name: refusal(partial(train, name, make)) for name, make in REFUSED.items()},
        "shuffled": passes(train("range", CASES["range"], shuffle=True)),
        "offset": passes(train("range", CASES["range"], shuffle=True, offset=7)),
        "ranks": [
            [numbers(train("range", CASES["range"], rank=rank, world=3)) for rank in range(3)],
            [
                numbers(decorate(CASES["range"])())
                for decorate in (
                    larder.cache_validation_dataset("range", "v1", rank=rank, world=6)
                    for rank in range(6)
                )
            ],
        ],
        "benchmark": [figure.name for figure in compare("10 kB", Path(storage), 1, 0.01)],
        "page": [int(batch[0]) for batch in page()["dataset"]],
        "batches": batches(lambda: train("range", CASES["range"], shuffle=True)),
        "batch of none": batch_of_none(train("range", CASES["range"])),
        "builder": built(),
        "cardinality": int(train("range", CASES["range"]).cardinality()),
    }
    answer["refused"]["state"] = refusal(lambda: train("range", CASES["range"], state={}))
    with tf.Graph().as_default():
        answer["refused"]["graph"] = refusal(lambda: train("range", CASES["range"]))
    try:
        train("failing", failing)
    except tf.errors.OpError as error:
        answer["failing"] = str(error)
    print(json.dumps(answer))


main(json.load(sys.stdin))
