"""Runs sections of docs/how-to/training-frameworks.md, against versions in a bucket."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import torch


def load_torchvision() -> None:
    """pip has torchvision for CUDA alone, whose operators a PyTorch without it cannot load: these
    two have to be there, and nothing here calls them.
    """
    try:
        import torchvision
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision

        torchvision.library = library


load_torchvision()

import pytorch_lightning as pl  # noqa: E402 - it imports torchvision


class Recorder(pl.LightningModule):
    """Counts red, and writes down which samples it is given."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.file = file
        self.steps: list[tuple[int, list[str]]] = []
        self.validated: list[list[str]] = []

    def training_step(self, batch: Any) -> Any:
        self.steps.append((self.current_epoch, batch["key"]))
        return self.layer(batch["image"].float().mean().reshape(1, 1)).sum()

    def validation_step(self, batch: Any) -> None:
        self.validated.append(batch["key"])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 1e-6)

    def on_fit_end(self) -> None:
        seen = {"steps": self.steps, "validated": self.validated}
        self.file.with_suffix(f".{self.global_rank}").write_text(json.dumps(seen))


def of_lightning(code: CodeType, folder: Path) -> Any:
    """Two processes train two epochs."""
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp_fork",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    exec(code, {"trainer": trainer, "model": Recorder(folder / "seen"), "checkpoint": None})
    return [json.loads(each.read_text()) for each in sorted(folder.glob("seen.*"))]


def of_torchvision(code: CodeType, folder: Path) -> Any:
    """The correlation of each image with its mask, and what two runs have."""
    runs: list[list[Any]] = []
    for _ in range(2):
        steps: list[Any] = []
        step = lambda images, masks, steps=steps: steps.append((images, masks))  # noqa: E731
        names: dict[str, Any] = {"train_step": step}
        exec(code, names)
        runs.append(steps)
    wide = {"image": np.zeros((9, 9, 3), np.uint8), "image.seg": np.full((9, 9, 1), 60_000, "u2")}
    of_16_bits = [names["varied"](wide, np.random.default_rng(n))["mask"] for n in range(9)]
    pairs = [pair for images, masks in runs[0] for pair in zip(images, masks, strict=True)]
    alike = [
        torch.corrcoef(torch.stack([image[0].flatten(), mask.float().flatten()]))[0, 1].item()
        for image, mask in pairs
    ]
    same = all(
        torch.equal(one, other)
        for first, second in zip(*runs, strict=True)
        for one, other in zip(first, second, strict=True)
    )
    return {
        "alike": alike,
        "same": same,
        "shape": list(runs[0][0][0].shape),
        "of_16_bits": np.unique(of_16_bits).tolist(),
    }


def of_classes(code: CodeType, folder: Path) -> Any:
    names: dict[str, Any] = {}
    exec(code, names)
    labels = torch.cat([batch["label"] for batch in names["balanced"]])
    return labels.bincount().tolist(), names["loss"].weight.tolist()


SECTIONS = {
    "PyTorch Lightning": of_lightning,
    "torchvision: images and masks": of_torchvision,
    "Classes of different sizes": of_classes,
}


def main(sections: dict[str, str], folder: str) -> dict[str, Any]:
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    read: dict[str, Any] = {}
    for number, (name, run) in enumerate(SECTIONS.items()):
        place = Path(folder, str(number))
        place.mkdir()
        read[name] = run(compile(sections[name], name, "exec"), place)
    return read


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
