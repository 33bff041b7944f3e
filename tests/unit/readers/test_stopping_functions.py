"""A function of the user that raises StopIteration, as `next` does, ends nothing in silence."""

import traceback

import pytest

from tests.support.numbered import NumberedSamples, loader_of


def exhausted(samples):
    return next(iter(samples[:0]))


@pytest.mark.parametrize("count", [0, 1])
def test_an_error_of_collate_that_is_a_stop_iteration_shows_its_line(count):
    loader = loader_of(NumberedSamples((400,)), batch_size=8, workers=count, collate=exhausted)
    with pytest.raises(RuntimeError, match="raised StopIteration") as caught:
        next(iter(loader))
    assert "next(iter(samples[:0]))" in "".join(traceback.format_exception(caught.value))
