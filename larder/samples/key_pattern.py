"""Users' regular expressions, searched for in sample keys in bounded time.

``(a+)+$`` takes longer than the age of the universe to fail to match forty letters. The package
``regex`` reads expressions like Python's ``re``, and has a timeout.
"""

from __future__ import annotations

from collections.abc import Sequence

from larder.errors import ConfigError

SECONDS = 5.0
"""Time limit for one sample key; most keys take microseconds."""


class KeyPattern:
    """A valid regular expression whose first group tells something about a sample."""

    def __init__(self, text: str, option: str) -> None:
        import regex  # takes milliseconds, and few datasets have a pattern

        self._search = regex.compile(text).search
        self._option = option

    def groups(self, sample_keys: Sequence[str]) -> list[str | None]:
        """Return the first group in each key; None for a key that does not match."""
        groups: list[str | None] = []
        for sample_key in sample_keys:
            try:
                match = self._search(sample_key, timeout=SECONDS)
            except TimeoutError:
                raise self._too_slow(sample_key) from None
            groups.append(match[1] if match else None)
        return groups

    def _too_slow(self, sample_key: str) -> ConfigError:
        message = f"the pattern of {self._option} takes more than {SECONDS:g} s in this sample key"
        hint = "repeat nothing that is repeated itself, as in (a+)+, and anchor it with ^ or $"
        return ConfigError("config.invalid_value", message, where=sample_key, hint=hint)
