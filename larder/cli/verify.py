"""``larder verify``: reads a published version again, and repairs what is damaged.

``python -m flows.verify`` is the same command with another way to run it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from larder.cli.command import Parser, command, shared_parameters
from larder.cli.output import DONE, print_json, print_text, tell
from larder.cli.signals import interruptible, loading
from larder.errors import ConfigError
from larder.packages import require

if TYPE_CHECKING:
    from larder.cli.display import Display
    from larder.verify.run import VerifySettings

DESCRIPTION = """\
Read everything again that a version lists, and compare it with what was published: documents,
manifests, shards, the checksum of every part, labels, caches. What is damaged, missing, exchanged
or foreign is named, and the exit status is 4. With --repair, what is damaged is moved aside and
made again to the same bytes; it comes back where that fails, and nothing is lost.\
"""

RunVerify = Callable[["VerifySettings", dict[str, Any], "Display"], dict[str, Any]]
"""Runs a verification and returns its JSON document; see `larder.cli.copy.RunCopy`."""

_MOST_DIGITS = 10


def run_here(
    options: VerifySettings, _parameters: dict[str, Any], display: Display
) -> dict[str, Any]:
    """Run in this process; a signal lets the files in progress finish."""
    import threading

    from larder.jobs.runner import InlineRunner
    from larder.verify.run import verify

    stop = threading.Event()
    runner = InlineRunner(options.settings.workers, display, stop)
    with interruptible(stop, display.say):
        return verify(options, runner)


def parser(prog: str) -> Parser:
    made = command(prog, DESCRIPTION)
    made.add_argument(
        "--version",
        metavar="ID|TAG",
        default="latest",
        help="the version, by its ID or a tag (default: latest)",
    )
    made.add_argument(
        "--sample",
        metavar="PERCENT",
        help="read only so much of the shards and caches, chosen at random: at least one shard of "
        "each split; everything small is always read",
    )
    made.add_argument(
        "--seed", metavar="N", help="choose the same files as the run that reported this seed"
    )
    made.add_argument(
        "--repair",
        action="store_true",
        help="make again what is damaged, to the same bytes, and with --version ID a lost tag"
        " `latest`; not with --sample",
    )
    return made


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "larder verify",
    *,
    run: RunVerify = run_here,
) -> int:
    started = time.monotonic()
    namespace = parser(prog).parse_args(arguments)
    sample, seed = _percent(namespace.sample), _seed(namespace.seed)
    if seed is not None and sample is None:
        hint = "leave it out, or add --sample 5: without it everything is read"
        raise ConfigError("config.invalid_flag", "--seed needs --sample", hint=hint)
    with loading():
        require("prepare")
        from larder.cli.display import Display
        from larder.pipeline.settings import load_settings
        from larder.verify.findings import DamagedError
        from larder.verify.report import verify_lines
        from larder.verify.run import VerifySettings

        settings = load_settings(
            namespace.dataset,
            namespace.cluster,
            config_dir=namespace.config_dir,
            settings=namespace.set,
            reads_source=namespace.repair,
        )
        options = VerifySettings(settings, namespace.version, sample, seed, namespace.repair)
    parameters = {
        "dataset": namespace.dataset,
        **shared_parameters(namespace),
        "version": namespace.version,
        "sample": sample,
        "seed": seed,
        "repair": namespace.repair,
    }
    damaged = None
    with Display(quiet=namespace.quiet) as display:
        try:
            document = run(options, parameters, display)
        except DamagedError as error:
            damaged, document = error, dict(error.document)
        document["seconds"] = round(time.monotonic() - started, 3)
        document["stages"] = display.stages()
    if namespace.json:
        if damaged:
            document["error"] = damaged.fields
        print_json(document, hint=DONE)
    elif not namespace.quiet or damaged:
        print_text("\n".join(verify_lines(document)), hint=DONE)
    if damaged:
        tell(f"error[{damaged.code}]: {damaged}")
        return damaged.exit_status
    return 0


def _percent(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not (0 < percent <= 100 and set(text) <= set("0123456789.")):
        message = "expected a percentage above 0, up to 100"
        hint = "write --sample 5 for five percent"
        raise ConfigError("config.invalid_flag", message, where="--sample", hint=hint)
    return percent


def _seed(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        message, hint = "expected a whole number", "write --seed 7"
        raise ConfigError("config.invalid_flag", message, where="--seed", hint=hint)
    return int(text)
