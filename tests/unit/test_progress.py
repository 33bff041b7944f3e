"""A stage that is asked to stop does, between two objects."""

from __future__ import annotations

from threading import Event
from typing import Any
from unittest import mock

import pytest

from larder.errors import FatalError
from larder.progress import NullProgress, Stoppable


def test_it_passes_on_what_it_is_told_until_it_is_to_stop() -> None:
    listener, stop = mock.create_autospec(NullProgress, instance=True), Event()
    progress = Stoppable(listener, stop)

    def tell(method: str, **told: Any) -> None:
        getattr(progress, method)("copy", **told)

    calls = {"start": {"objects": 2, "bytes": 3}, "advance": {"objects": 1, "bytes": 2}}
    for method, told in calls.items():
        tell(method, **told)
        getattr(listener, method).assert_called_once_with("copy", **told)
    stop.set()
    for method, told in calls.items():
        with pytest.raises(FatalError) as caught:
            tell(method, **told)
        assert caught.value.code == "run.interrupted"
        getattr(listener, method).assert_called_once()
    progress.finish("copy")
    listener.finish.assert_called_once_with("copy")
    with pytest.raises(FatalError):
        Stoppable(listener, stop)
