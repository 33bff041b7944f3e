"""Reads samples by number with each of the three readers, in PyTorch's environment."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch

import larder

INDEXES: dict[str, Any] = {
    **{repr(number): number for number in (0, 4, -1, -5, 5, -6, 2**63, True, 1.0, None)},
    **{repr(each): each for each in ("1", slice(1, 3), slice(-2, None), slice(None, None, -2))},
    **{repr(each): each for each in ([0, -1], [], (3,), [True, False], [1, True], [5], [[0]])},
    **{repr(each): each for each in (np.uint64(4), np.int8(-1), np.True_, np.array(3))},
    **{repr(each): each for each in (np.array([1, 4], np.uint64), np.ones(5, bool))},
    "mixed": [np.uint64(1), -2],
    "array of bool": np.array(True),
    "tensor": torch.tensor(4),
    "tensors": [torch.tensor(0), torch.tensor(-1)],
    "vector": torch.tensor([3, 1]),
    "tensor of bool": torch.tensor(True),
}


def key_of(sample: Any) -> Any:
    return sample["key"] if isinstance(sample, dict) else sample.key


def keys(reader: Any, index: Any) -> Any:
    try:
        read = reader[index]
    except (IndexError, TypeError) as error:
        return f"{type(error).__name__}: {error}".replace("record", "sample")
    return list(map(key_of, read)) if isinstance(read, list) else key_of(read)


def main(address: str) -> dict[str, list[Any]]:
    data = larder.open(address)
    readers = (data.samples_of("train"), data.cache("train"), data.torch_samples("train"))
    return {name: [keys(each, index) for each in readers] for name, index in INDEXES.items()}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
