"""Damaged samples: their names, also in a mix, and when their error comes."""

import pytest

import larder
from larder.errors import DamageError
from tests.support.numbered import NumberedSamples, loader_of


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_sample_has_its_key_for_a_name(workers):
    given = {"batch_size": 10, "on_error": "skip", "workers": workers}
    sizes_and_bad = [(20, 4), (30, 25), (40, 31)]
    loaders = [
        loader_of(NumberedSamples([size], bad=[bad]), split=f"s{size}", **given)
        for size, bad in sizes_and_bad
    ]
    for loader, (_, bad) in zip(loaders, sizes_and_bad, strict=True):
        list(loader)
        assert [failure.key for failure in loader.skipped.shown] == [f"{bad:06}"]
        loader.go_to(0, 0)
    mix = larder.mix([(loader, 1) for loader in loaders], batches=12)
    list(mix)
    assert {failure.key for failure in mix.skipped.shown} == {"000004", "000025", "000031"}


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
