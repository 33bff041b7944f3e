"""What a block of a test has to end with: an error of Larder, by its code and where it points."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from larder.errors import ConfigError, DamageError, LarderError, ObjectError

_KINDS = {"config": ConfigError, "damage": DamageError, "object": ObjectError}
"""The class that a code is of, by its first word; other words have several."""


@contextmanager
def larder_error(
    code: str, where: str | None = None
) -> Iterator[pytest.ExceptionInfo[LarderError]]:
    """A block that has to raise an error with this code, at this place if one is given."""
    kind: type[LarderError] = _KINDS.get(code.partition(".")[0], LarderError)
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, str(caught.value)
    assert where in (None, caught.value.where)


def error_of(call: Callable[..., object], *arguments: Any, **options: Any) -> LarderError:
    """The error that a call has to raise, in one line."""
    with pytest.raises(LarderError) as caught:
        call(*arguments, **options)
    assert "\n" not in str(caught.value)
    return caught.value


def code_of(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    return error_of(call, *arguments, **options).code
