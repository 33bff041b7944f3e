"""Trains by recipes of the pages, kills training at steps, and resumes it.

Each run is a forked process, because a framework takes seconds to import. Every checkpoint has the
samples that steps of the optimizer took, in order. So the last checkpoint tells whether a run that
was killed has trained with each sample as often, and in the same order, as one that was not.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import larder
from larder.errors import LarderError
from tests.support.numbered import number_of

URL = "s3://team/larder/imagenet@latest"
EPOCHS = 2
SEED: dict[str, Any] = {"shuffle": True, "seed": 7}
LIMITED = ("limit", "fraction", "both", "steps")
"""Options with which the last epoch may end early."""

FOUND = {"Keras: executions": [12], "PyTorch Lightning: both": [15, 8, 8, 6, 8]}
"""Kills of a chain that went wrong once, for every push."""

EVERY = 3
"""Steps after which recipes that do not say it keep a checkpoint."""


class Run(NamedTuple):
    """A run of a recipe, from the newest checkpoint of earlier runs."""

    code: str
    option: str
    folder: Path
    number: int
    kill: int | None

    @property
    def checkpoint(self) -> Path | None:
        steps = {int(re.findall(r"\d+", path.name)[-1]): path for path in self.folder.glob("*/*-*")}
        return steps[max(steps)] if steps else None

    @property
    def place(self) -> Path:
        """The folder of this run's checkpoints; other runs have others."""
        return self.folder / str(self.number)

    def killing(self) -> Callable[[], None]:
        """A function that kills the process when it was called often enough."""
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1
            if steps == self.kill and self.option.startswith("exception"):
                raise Failed
            if steps == self.kill:
                os.kill(os.getpid(), signal.SIGKILL)

        return step

    def end(self, trail: Any) -> None:
        (self.folder / "end.json").write_text(json.dumps([*map(int, trail)]))


Recipe = Callable[[Run], None]


def numbers(keys: Any) -> list[int]:
    return [int(number_of(key)) for key in keys]


def counting() -> Any:
    """A model in PyTorch of one weight, and the samples of all its steps."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.Parameter(torch.zeros(1))
            self.register_buffer("trail", torch.full((20_000,), -1))
            self.register_buffer("length", torch.tensor(0))
            self.waiting: list[int] = []

        def loss(self, given: list[int]) -> Any:
            self.waiting += given
            return self.weights.sum() * len(given)

        def stepped(self, *_: Any) -> None:
            start = int(self.length)
            self.trail[start : start + len(self.waiting)] = torch.tensor(self.waiting)
            self.length += len(self.waiting)
            self.waiting = []

        def end(self, run: Run) -> None:
            run.end(self.trail[: int(self.length)].tolist())

    model = Counting()
    register_optimizer_step_post_hook(model.stepped)
    return model


def kept(place: Path, write: Callable[[Path], Any]) -> None:
    """A checkpoint appears whole, as no run may resume from half of one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    write(place.with_suffix(".new"))
    place.with_suffix(".new").rename(place)


def lightning(run: Run) -> None:
    """The recipe of PyTorch Lightning, as the page has it."""
    import pytorch_lightning as pl
    from pytorch_lightning.callbacks import ModelCheckpoint, OnExceptionCheckpoint

    step, is_failing = run.killing(), run.option.startswith("exception")

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.counting = counting()

        def training_step(self, batch: Any, number: int) -> Any:
            if is_failing:
                step()
            loss = self.counting.loss(numbers(batch["key"]))
            if not is_failing:
                step()
            return loss

        def validation_step(self, batch: Any, number: int) -> None:
            assert len(batch["key"]) <= 64

        def configure_optimizers(self) -> Any:
            import torch

            return torch.optim.SGD(self.parameters(), 1.0)

    options: dict[str, dict[str, Any]] = {
        "accumulation": {"accumulate_grad_batches": 4},
        "limit": {"limit_train_batches": 7, "max_epochs": 4},
        "fraction": {"limit_train_batches": 0.5, "max_epochs": 5},
        "both": {"limit_train_batches": 7, "max_epochs": 4, "accumulate_grad_batches": 3},
        "exception_accumulation": {"accumulate_grad_batches": 4},
        "validation": {"val_check_interval": 4, "limit_val_batches": 1},
        "validation_accumulation": {"val_check_interval": 3, "accumulate_grad_batches": 4},
        "steps": {"max_steps": 17, "max_epochs": -1},
    }
    every = 1 if run.option in ("accumulation", "both") else EVERY
    saving: list[Any] = [
        ModelCheckpoint(run.place, "{step}-{step}", every_n_train_steps=every, save_top_k=-1)
    ]
    if is_failing:
        saving = [OnExceptionCheckpoint(run.place, f"failed-{run.number}")]
    elif run.option in ("epochs", "validation_accumulation"):
        saving = [ModelCheckpoint(run.place, "{epoch}-{step}", save_top_k=-1)]
    given: dict[str, Any] = {"max_epochs": EPOCHS, **options.get(run.option, {})}
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=run.folder,
        callbacks=saving,
        **given,
    )
    model = Model()
    exec(run.code, {"trainer": trainer, "model": model, "checkpoint": run.checkpoint})
    model.counting.end(run)


def accelerate(run: Run) -> None:
    """The recipe of Accelerate, as the page has it."""
    import torch

    steps = 4 if run.option == "accumulation" else 1
    os.environ["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = str(steps)
    step = run.killing()
    model = counting()
    checkpoint = run.checkpoint
    names: dict[str, Any] = {"model": model, "checkpoint": checkpoint}
    names["optimizer"] = torch.optim.SGD(model.parameters(), 1.0)

    def train_step(accelerator: Any, model: Any, optimizer: Any, images: Any, _: Any) -> None:
        with accelerator.accumulate(model):
            accelerator.backward(model.loss(numbers(names["batch"]["key"])))
            optimizer.step()
            optimizer.zero_grad()
        step()
        if accelerator.sync_gradients:
            kept(run.place / f"state-{int(model.length)}", accelerator.save_state)

    names["train_step"] = train_step
    exec(run.code, names)
    model.end(run)


def transformers(run: Run) -> None:
    """The recipe of the Trainer, as the page has it."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast, TrainingArguments

    words = {"[PAD]": 0, "[UNK]": 1, **{f"w{n}": n + 2 for n in range(72)}}
    table = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    table.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=table, pad_token="[PAD]", unk_token="[UNK]"
    )
    step = run.killing()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.counting = counting()

        def forward(self, input_ids: Any, attention_mask: Any, labels: Any) -> Any:
            given = (input_ids[:, 0] - 2).tolist()
            if not self.training:
                return {"loss": self.counting.weights.sum()}
            step()
            return {"loss": self.counting.loss(given)}

    options: dict[str, dict[str, Any]] = {
        "accumulation": {"gradient_accumulation_steps": 4, "save_steps": 1},
        "steps": {"max_steps": 14},
        "both": {"max_steps": 5, "gradient_accumulation_steps": 4},
        "evaluation": {"eval_strategy": "steps", "eval_steps": 2},
        "epochs": {"save_strategy": "epoch"},
    }
    given: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    given |= {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant"}
    given |= {"max_grad_norm": 0.0, "report_to": [], "use_cpu": True, "disable_tqdm": True}
    given |= {"num_train_epochs": EPOCHS, **options.get(run.option, {})}
    arguments = TrainingArguments(str(run.place), **given)
    model = Model()
    checkpoint = run.checkpoint and str(run.checkpoint)
    names = {"tokenizer": tokenizer, "arguments": arguments, "checkpoint": checkpoint}
    exec(run.code, {**names, "model": model})
    model.counting.end(run)


def keras(run: Run) -> None:
    """The sequence of the page, with its callback; the state is kept with the weights."""
    import keras
    import tensorflow

    data = larder.open(URL)
    options: dict[str, Any] = {"transforms": {"key": number_of}, "columns": ("key", "label")}
    options |= {"batch_size": 64, "workers": 2 if run.option == "processes" else 0}
    sequence = data.keras("train", **SEED, **options)
    validation = data.keras("validation", **options)
    step, checkpoint = run.killing(), run.checkpoint
    trail: list[int] = []

    class Model(keras.Model):  # type: ignore[misc]
        def call(self, values: Any) -> Any:
            return values

        def train_step(self, given: Any) -> dict[str, Any]:
            trail.extend(given[0].numpy().tolist())
            step()
            return {"loss": tensorflow.size(given[0])}

        def test_step(self, given: Any) -> dict[str, Any]:
            return {"loss": tensorflow.size(given[0])}

    class Save(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            trail[:] = state["trail"]

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            text = json.dumps({"trail": trail, "loader": sequence.batches.state_dict()})
            kept(run.place / f"at-{len(trail)}", lambda path: path.write_text(text))
            self.model.stop_training = len(trail) >= EPOCHS * 600

    fitting: dict[str, dict[str, Any]] = {
        "validation": {"validation_data": validation},
        "steps": {"steps_per_epoch": 5},
        "uncounted_steps": {"steps_per_epoch": 5},
        "validation_steps": {"validation_data": validation, "validation_steps": 1},
        "unshuffled": {"shuffle": False},
    }
    state = json.loads(checkpoint.read_text()) if checkpoint else {"trail": []}
    if checkpoint:
        sequence.batches.load_state_dict(state["loader"])
    model = Model()
    executions = 3 if run.option == "executions" else 1
    model.compile("sgd", run_eagerly=True, steps_per_execution=executions)
    callbacks = [] if run.option == "uncounted_steps" else [sequence.callback()]
    model.fit(
        sequence,
        epochs=EPOCHS,
        initial_epoch=sequence.batches.epoch,
        callbacks=[*callbacks, Save()],
        verbose=0,
        **fitting.get(run.option, {}),
    )
    run.end(trail[: EPOCHS * 600])  # a step of several executions may go beyond


class Failed(Exception):  # noqa: N818 - a test means it to happen
    """Training failed in the middle of a step."""


PROGRAMS: dict[str, dict[str, tuple[Recipe, str]]] = {
    "trainers": {
        "PyTorch Lightning": (
            lightning,
            "plain accumulation limit fraction both validation steps epochs exception"
            " exception_accumulation validation_accumulation",
        ),
        "Accelerate": (accelerate, "plain accumulation"),
        "Text, and the Trainer of Hugging Face": (
            transformers,
            "plain accumulation steps both evaluation epochs",
        ),
    },
    "tensorflow": {
        "Keras": (
            keras,
            "plain processes validation unshuffled executions steps validation_steps"
            " uncounted_steps",
        ),
    },
}


def forked(recipe: Recipe, run: Run) -> str:
    """Run a recipe in a forked process: killed, over, failed, crashed, or an error's code."""
    run.place.mkdir(parents=True)
    child = os.fork()
    if not child:
        code = 1
        try:
            with contextlib.redirect_stdout(sys.stderr):
                recipe(run)
            code = 0
        except LarderError as error:
            (run.folder / "error").write_text(error.code)
            code = 2
        except Failed:
            code = 3
        except BaseException:  # noqa: BLE001 - the parent only sees the status
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 2:
        return (run.folder / "error").read_text()
    return {0: "over", 3: "failed", -signal.SIGKILL: "killed"}.get(status, "crashed")


def killed_and_resumed(
    recipe: Recipe, code: str, option: str, folder: Path, kills: list[int]
) -> list[int] | str:
    """Samples that runs trained with: some are killed at these steps, the last one is not."""
    for number, kill in enumerate([*kills, None]):
        ended = forked(recipe, Run(code, option, folder, number, kill))
        if ended not in ("killed", "failed"):
            break
    if ended != "over":
        return ended
    trail: list[int] = json.loads((folder / "end.json").read_text())
    return trail


def cases(program: str) -> list[str]:
    recipes = PROGRAMS[program].items()
    return [f"{heading}: {option}" for heading, (_, words) in recipes for option in words.split()]


def row_of(
    program: str, case: str, sections: dict[str, str], folder: Path, chains: list[int], seed: int
) -> dict[str, Any]:
    """Compare chains of runs, all killed but the last, with a run that went through.

    The first run of a chain is killed anywhere, the others within a few steps.
    """
    heading, option = case.split(": ")
    recipe, _ = PROGRAMS[program][heading]
    place = folder / case.replace(" ", "_")
    code = sections.get(heading, "")
    whole = killed_and_resumed(recipe, code, option, place / "whole", [])
    if isinstance(whole, str):
        return {"case": case, "refused": whole}
    samples, size = (72, 8) if recipe is transformers else (600, 64)
    epochs = [whole[start : start + samples] for start in range(0, len(whole), samples)]
    steps = -(-len(whole) // size)
    draws = random.Random(f"{case} {seed}")
    chosen = [FOUND[case]] if case in FOUND else []
    for length in chains:
        near = (draws.randint(1, 8) for _ in range(length - 1))
        chosen.append([draws.randint(1, steps - 1), *near])
    ends = [
        killed_and_resumed(recipe, code, option, place / str(number), kills)
        for number, kills in enumerate(chosen)
    ]
    return {
        "case": case,
        "repeated": sum(len(epoch) - len({*epoch}) for epoch in epochs),
        "missing": 0 if option in LIMITED else EPOCHS * samples - len(whole),
        "differ": [kills for kills, end in zip(chosen, ends, strict=True) if end != whole],
    }


def main(
    program: str,
    chosen: list[str],
    sections: dict[str, str],
    folder: str,
    chains: list[int],
    seed: int,
) -> list[dict[str, Any]]:
    warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
    larder.open(URL)  # TensorFlow brings a libcurl of its own, which must not come first
    if program == "tensorflow":
        import keras  # noqa: F401 - once for all forks
        import tensorflow  # noqa: F401
    else:
        from tests.frameworks.with_trainers import load_torchvision

        load_torchvision()
        import accelerate  # noqa: F401
        import pytorch_lightning  # noqa: F401
        import transformers  # noqa: F401
    rows = []
    for case in chosen:
        rows.append(row_of(program, case, sections, Path(folder), chains, seed))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
