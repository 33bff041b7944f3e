"""Samples that are left out have their keys for names, also those of a mix."""

import pytest

import larder
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
