"""A misspelt option of a decorator is refused before anything is cached."""

import pytest

import larder
from tests.support.errors import larder_error


@pytest.mark.parametrize("cache", [larder.cache_train_dataset, larder.cache_validation_dataset])
def test_an_unknown_option_is_refused(cache):
    with larder_error("config.invalid_value", "batchsize") as caught:
        cache("d", "v1", batchsize=4)
    assert "did you mean batch_size?" in str(caught.value)
