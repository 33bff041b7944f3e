"""Trains with the Trials and the Core API of docs/how-to/experiment-configs.md, off-cluster."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from determined import pytorch

HPARAMS = {"global_batch_size": 4}


def fitted(kind: Any, config: Any, batches: int, checkpoint: str | None = None) -> dict[str, Any]:
    """What a trial has trained with, and the last checkpoint that it left."""
    labels: list[list[int]] = []

    class Recorded(kind):  # type: ignore[misc]
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            labels.append(batch["label"].tolist())
            assert batch["image"].shape[1:] == (8, 8, 3)
            return super().train_batch(batch, epoch_idx, batch_idx)

    options = {"exp_conf": config, "enable_tensorboard_logging": False}
    with pytorch.init(hparams=HPARAMS, **options) as context:
        trainer = pytorch.Trainer(Recorded(context), context)
        trainer.fit(
            max_length=pytorch.Batch(batches),
            validation_period=pytorch.Batch(2),
            latest_checkpoint=checkpoint,
        )
    kept = Path(os.environ["HOME"]).rglob("state_dict.pth")
    newest = max(kept, key=lambda path: path.stat().st_mtime_ns)
    return {"labels": labels, "checkpoint": newest.parent.name}


def main(codes: dict[str, str], images: Any, digits: Any) -> dict[str, Any]:
    os.chdir(tempfile.mkdtemp(dir=os.environ["HOME"]))  # every checkpoint has a copy of this folder
    names: dict[str, Any] = {}
    for code in codes.values():
        exec(code, names)
    os.environ["DET_EXPERIMENT_CONFIG"] = json.dumps(images)
    trial = names["ImageTrial"]
    result: dict[str, Any] = {"whole": fitted(trial, images, 7)}
    first = fitted(trial, images, 3)
    result["resumed"] = [first, fitted(trial, images, 7, first["checkpoint"])]

    def begin(self: Any, context: Any) -> None:
        start(self, context)
        self.model = context.wrap_model(
            torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 3, 10))
        )
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    others = names["DigitsTrial"]
    start = others.__init__
    methods = {name: vars(trial)[name] for name in ("train_batch", "evaluate_batch")}
    result["digits"] = fitted(type("T", (others,), {"__init__": begin, **methods}), digits, 4)
    steps: list[Any] = []
    checkpoint = names["main"](steps.append, 1)
    names["main"](steps.append, 3, checkpoint)
    result["core"] = [batch["label"].tolist() for batch in steps]
    return result


if __name__ == "__main__":
    given = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        trained = main(**given)
    print(json.dumps(trained))
