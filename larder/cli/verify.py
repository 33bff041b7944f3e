"""``larder verify``: reads a published version again, and repairs damage."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from larder.cli.arguments import Parser, dataset_parser
from larder.cli.command import Command, Operation
from larder.errors import ConfigError

if TYPE_CHECKING:
    from larder.jobs.runner import Execute, Runner, Start

_DESCRIPTION = """\
Read everything again that a version lists, and compare it with what was published: documents,
manifests, shards, the checksum of every part, labels, caches. What is damaged, missing, exchanged
or foreign is named, and the exit status is 4. With --repair, what is damaged is made again and
replaced if it has the same bytes as were published; what was in its place is kept.\
"""


def _parser(prog: str) -> Parser:
    parser = dataset_parser(prog, _DESCRIPTION)
    parser.add_argument(
        "--version",
        metavar="ID|TAG",
        default="latest",
        help="the version, by its ID, the first digits of that, or a tag (default: latest)",
    )
    parser.add_argument(
        "--sample",
        metavar="PERCENT",
        type=float,
        help="read only so much of the shards and caches, chosen at random: at least one shard of "
        "each split; everything small is always read",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=int,
        help="choose the same files as the run that reported this seed",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="make again what is damaged, to the same bytes, and with --version ID a lost tag"
        " `latest`; not with --sample",
    )
    return parser


def _operation(
    dataset: str,
    cluster: str = "local",
    *,
    settings: Sequence[str] = (),
    config_dir: str = "configs",
    version: str = "latest",
    sample: float | None = None,
    seed: int | None = None,
    repair: bool = False,
) -> Operation:
    if seed is not None and sample is None:
        hint = "leave it out, or add --sample 5: without it everything is read"
        raise ConfigError("config.invalid_flag", "--seed needs --sample", hint=hint)
    from larder.pipeline.settings import load_settings

    loaded = load_settings(
        dataset,
        cluster,
        config_dir=Path(config_dir),
        settings=settings,
        reads_source=repair,
    )
    from larder.verify.run import VerifySettings, verify
    from larder.verify.verify_report import verify_lines

    options = VerifySettings(loaded, version, sample, seed, repair)
    compose = partial(_compose, partial(verify, options))
    of_cluster = loaded.cluster
    batches = of_cluster.runner, of_cluster.storage, of_cluster.copy_.memory
    return Operation(loaded.workers, compose, verify_lines, verify_lines, *batches)


def _compose(execute: Execute, runner: Runner, *, start: Start | None = None) -> dict[str, Any]:
    """There is nothing to plan."""
    return start(execute) if start else execute(runner)


VERIFY = Command("verify", _parser, _operation)
