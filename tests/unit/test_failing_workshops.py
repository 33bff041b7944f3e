"""A workshop that cannot be locked leaves nothing."""

import os
from typing import Any

import pytest

from larder.disk import workshop
from larder.errors import StoreError


def test_a_disk_that_is_full_between_a_workshop_and_its_lock_leaves_nothing(tmp_path, monkeypatch):
    real = os.open

    def full(path: Any, *more: Any) -> Any:
        if str(path).endswith("/lock"):
            raise OSError(28, "No space left on device")
        return real(path, *more)

    monkeypatch.setattr("os.open", full)
    with pytest.raises(StoreError) as caught, workshop(tmp_path / "parent"):
        pass
    assert caught.value.code == "store.full"
    assert os.listdir(tmp_path / "parent") == []
