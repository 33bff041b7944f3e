"""Ranks that PyTorch spawns, without variables in the environment, read their batches."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch.multiprocessing
from torch import distributed
from torch.utils.data import DataLoader, get_worker_info

import larder

OPTIONS: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 7}


class Lazy(torch.utils.data.IterableDataset[Any]):
    """Opens its loader in the forked worker that reads it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __iter__(self) -> Any:
        assert get_worker_info() is not None
        return iter(larder.open(self.url).torch("train", **OPTIONS).batches)


def keys(batches: Any) -> list[list[str]]:
    return [list(batch["key"]) for batch in batches]


def rank_main(rank: int, folder: str, url: str) -> None:
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    meeting = f"file://{folder}/meeting"
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2)
    data = larder.open(url)
    read = {
        "threads": keys(data.torch("train", **OPTIONS).loader()),
        "loader": keys(data.loader("train", **OPTIONS)),
        "all": keys(data.loader("train", rank=0, world=1, **OPTIONS)),
        "forked": keys(data.torch("train", **OPTIONS).loader(2)),
        "spawned": keys(data.torch("train", **OPTIONS).loader(1, multiprocessing_context="spawn")),
        "lazy": keys(
            DataLoader(Lazy(url), batch_size=None, num_workers=1, multiprocessing_context="fork")
        ),
    }
    Path(folder, f"rank.{rank}").write_text(json.dumps(read))
    distributed.barrier()
    distributed.destroy_process_group()


def main(url: str, folder: str) -> dict[str, Any]:
    data = larder.open(url)
    torch.multiprocessing.spawn(rank_main, (folder, url), nprocs=2)
    return {
        "wanted": keys(data.loader("train", **OPTIONS)),
        "ranks": [json.loads(Path(folder, f"rank.{rank}").read_text()) for rank in range(2)],
    }


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
