"""Damaged samples: their names, also in a mix, and when their error comes."""

import pytest

from larder.errors import DamageError
from tests.support.numbered import NumberedSamples, loader_of


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("begin", [0, 7])
def test_the_error_of_a_damaged_sample_comes_when_its_batch_does(workers, begin):
    """Several batches are read at once."""
    given = {"batch_size": 5, "workers": workers, "memory_bytes": 1 << 20}
    keys = [batch["key"] for batch in loader_of(NumberedSamples([200]), **given)]
    bad = int(keys[23][2])
    loader = loader_of(NumberedSamples([200], bad=[bad]), **given)
    loader.skip(begin)
    for _ in range(2):
        with pytest.raises(DamageError):
            list(loader)
        assert loader.batches == 23
        loader.skip(0)
    loader.skip(1)
    assert [batch["key"] for batch in loader] == keys[24:]
