"""Runs sections of docs/how-to/training-frameworks.md, against versions in a bucket."""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import suppress
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
from pytorch_lightning.callbacks import ModelCheckpoint  # noqa: E402


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
    """Two processes train two epochs; others go on in the middle of the first, and after it."""
    checkpoints = folder / "checkpoints"

    def fit(name: str, checkpoint: Path | None = None, **options: Any) -> list[Any]:
        file = folder / name
        saving = [
            ModelCheckpoint(checkpoints, "{step}", every_n_train_steps=1, save_top_k=-1),
            ModelCheckpoint(checkpoints, "{epoch}", save_top_k=-1),
        ]
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=2,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            callbacks=[] if checkpoint else saving,
            **options,
        )
        exec(code, {"trainer": trainer, "model": Recorder(file), "checkpoint": checkpoint})
        return [json.loads(each.read_text()) for each in sorted(folder.glob(f"{name}.*"))]

    return {
        "both": fit("both", devices=2, strategy="ddp_fork"),
        "middle": fit("middle", checkpoints / "step=3.ckpt", devices=1),
        "after": fit("after", checkpoints / "epoch=0.ckpt", devices=1),
        "later": fit("later", checkpoints / "step=7.ckpt", devices=1),
    }


class Stopped(Exception):  # noqa: N818 - nothing is wrong
    """Training was stopped."""


def of_accelerate(code: CodeType, folder: Path) -> Any:
    """Training that is stopped after three batches, and goes on."""
    steps: list[list[str]] = []
    names: dict[str, Any] = {}

    def train_step(accelerator: Any, model: Any, optimizer: Any, images: Any, _: Any) -> None:
        accelerator.backward(model(images.float().mean().reshape(1, 1)).sum())
        optimizer.step()
        steps.append(names["batch"]["key"])
        if names["checkpoint"] is None and len(steps) == 3:
            accelerator.save_state(folder / "state")
            raise Stopped

    for checkpoint in (None, folder / "state"):
        layer = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(layer.parameters(), 1e-6)
        names |= {"model": layer, "optimizer": optimizer}
        names |= {"checkpoint": checkpoint, "train_step": train_step}
        with suppress(Stopped):
            exec(code, names)
    return steps


class Words(torch.nn.Module):
    """Writes down the first word of each text."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Embedding(40, 1)
        self.seen: dict[str, list[list[int]]] = {"steps": [], "evaluated": []}

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any) -> Any:
        self.seen["steps" if self.training else "evaluated"].append(input_ids[:, 0].tolist())
        assert (attention_mask == (input_ids != 0)).all()
        return {"loss": (self.layer(input_ids).mean((1, 2)) - labels).square().mean()}


def of_transformers(code: CodeType, folder: Path) -> Any:
    """Three epochs, of which every step is kept; and from the middle and the end of one."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast, TrainingArguments

    words = {"[PAD]": 0, "[UNK]": 1, **{f"w{n}": n + 2 for n in range(24)}}
    model = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    model.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="[PAD]", unk_token="[UNK]"
    )
    runs = []
    for checkpoint in (None, *(str(folder / f"checkpoint-{step}") for step in (2, 3, 4))):
        arguments = TrainingArguments(
            str(folder),
            num_train_epochs=3,
            save_steps=1 if checkpoint is None else 100,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        given = {"tokenizer": tokenizer, "arguments": arguments, "checkpoint": checkpoint}
        words_of = Words()
        exec(code, {**given, "model": words_of})
        runs.append(words_of.seen)
    return runs


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
    "Accelerate": of_accelerate,
    "Text, and the Trainer of Hugging Face": of_transformers,
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
