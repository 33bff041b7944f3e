"""Regular expressions that users write, searched for in sample keys, in bounded time.

Python tries every way in which an expression can match: ``(a+)+$`` takes longer than the universe
has existed to find that it does not match forty letters, and meanwhile no thread of the process
goes on, so that nothing can interrupt it. What may take so long is searched for in a process of its
own (`larder.samples.key_pattern_worker`), which gives up after some seconds and names the key.
"""

from __future__ import annotations

import json
import re
import subprocess
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from larder.errors import ConfigError, FatalError
from larder.programs import start_program

__all__ = ["SECONDS", "KeyPattern", "may_take_long"]

SECONDS = 5.0
"""How long one sample key may take; others take microseconds."""

_KEYS = 10_000
"""Keys that are sent at once."""

_LITERAL = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_REPEATED_GROUP = re.compile(r"\)(?:[*+]|\{)")
_UNBOUNDED = re.compile(r"[*+]|,\}")
_MOST_UNBOUNDED = 3


def may_take_long(text: str) -> bool:
    """Whether an expression may take long: it repeats a group, or repeats more than three times.

    Without that, the time is at most about the cube of the length of a key, which has 1,024 bytes.
    """
    rest = _LITERAL.sub("x", text)
    return bool(_REPEATED_GROUP.search(rest)) or len(_UNBOUNDED.findall(rest)) > _MOST_UNBOUNDED


class KeyPattern:
    """A regular expression whose first group says something about a sample.

    Args:
        text: The expression, which is valid and has a group.
        option: What it is called in the dataset file, for errors.
    """

    def __init__(self, text: str, option: str) -> None:
        self._text = text
        self._option = option
        self._pattern = None if may_take_long(text) else re.compile(text)
        self._process: subprocess.Popen[bytes] | None = None

    def groups(self, sample_keys: Sequence[str]) -> list[str | None]:
        """What the first group is in each key; None where there is no match, or not of the group.

        Raises:
            ConfigError: ``config.invalid_value``: it takes more than `SECONDS` for a key.
            FatalError: ``run.failed``: the process ended.
        """
        if self._pattern is not None:
            matches = map(self._pattern.search, sample_keys)
            return [match[1] if match else None for match in matches]
        found: list[str | None] = []
        for start in range(0, len(sample_keys), _KEYS):
            keys = sample_keys[start : start + _KEYS]
            answer = self._ask({"pattern": self._text, "seconds": SECONDS, "keys": list(keys)})
            if "slow" in answer:
                raise self._too_slow(keys[answer["slow"]])
            found += answer["groups"]
        return found

    def _ask(self, request: dict[str, Any]) -> Any:
        if self._process is None:
            self._process = start_program("larder.samples.key_pattern_worker")
            weakref.finalize(self, _end, self._process)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None, "it has pipes"
        assert stdout is not None, "it has pipes"
        line = b""
        with suppress(OSError):
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
            line = stdout.readline()
        if not line.endswith(b"\n"):
            message, hint = "the process that searches sample keys ended", "run again"
            raise FatalError("run.failed", message, where=self._option, hint=hint)
        return json.loads(line)

    def _too_slow(self, sample_key: str) -> ConfigError:
        message = f"the pattern of {self._option} takes more than {SECONDS:g} s in this sample key"
        hint = "repeat nothing that is repeated itself, as in (a+)+, and anchor it with ^ or $"
        return ConfigError("config.invalid_value", message, where=sample_key, hint=hint)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process: it holds nothing that would be lost."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    process.wait()
