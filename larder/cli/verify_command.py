"""``larder verify``: reads a published version again, and repairs damage."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from larder.cli.arguments import Parser, add_dataset
from larder.cli.command import Command, Operation
from larder.errors import ConfigError

if TYPE_CHECKING:
    from larder.jobs.step_runner import Execute, Runner, Start

_DESCRIPTION = """\
Read everything again that a version lists, and compare it with what was published: documents,
manifests, shards, the checksum of every part, labels, caches. What is damaged, missing, exchanged
or foreign is named, and the exit status is 4. With --repair, what is damaged is made again and
replaced if it has the same bytes as were published; what was in its place is kept.\
"""


def _add(parser: Parser) -> None:
    add = parser.add_argument
    version = "the version: its ID, the first digits of that, or a tag (default: latest)"
    add("--version", metavar="ID|TAG", default="latest", help=version)
    sample = "read only this percentage of the shards and caches, chosen at random: at least one"
    always = " shard of each split; everything small is always read"
    add("--sample", metavar="PERCENT", type=float, help=sample + always)
    seed = "choose the same files as the run that reported this seed"
    add("--seed", metavar="N", type=int, help=seed)
    repair = "make again what is damaged, to the same bytes, and with --version ID a lost tag"
    add("--repair", action="store_true", help=f"{repair} `latest`; not with --sample")


def _operation(
    version: str, sample: float | None, seed: int | None, *, repair: bool, **flags: Any
) -> Operation:
    if seed is not None and sample is None:
        hint = "leave it out, or add --sample 5: without it everything is read"
        raise ConfigError("config.invalid_flag", "--seed needs --sample", hint=hint)
    from larder.pipeline.settings import load_settings

    loaded = load_settings(**flags, reads_source=repair)
    from larder.verify.verifying import VerifySettings, verify, verify_lines

    options = VerifySettings(loaded, version, sample, seed, repair)
    compose = partial(_compose, partial(verify, options))
    of_cluster = loaded.cluster
    batches = of_cluster.runner, of_cluster.storage, of_cluster.copy_.memory
    return Operation(loaded.batches_at_once, compose, verify_lines, verify_lines, *batches)


def _compose(execute: Execute, runner: Runner, *, start: Start | None = None) -> dict[str, Any]:
    """There is nothing to plan."""
    return start(execute) if start else execute(runner)


VERIFY = Command("verify", _DESCRIPTION, (add_dataset, _add), _operation)
