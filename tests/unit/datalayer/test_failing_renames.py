"""A built cache that cannot get its name is an error of Larder."""

import os

import pytest

import larder
from larder.errors import LarderError


@pytest.mark.parametrize("number", [5, 13, 28])
def test_a_file_that_cannot_be_renamed_is_one_error(tmp_path, monkeypatch, number):
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    train = larder.cache_train_dataset("d", "v1", storage=str(tmp_path))(lambda: range(3))
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(LarderError):
            train()
    assert [*map(int, train())] == [0, 1, 2]
