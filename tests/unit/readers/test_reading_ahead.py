"""Groups of batches that are read at once, and end with the iteration."""

import threading

import pytest

from larder.errors import FatalError, StoreError
from larder.readers.options import Shuffle
from larder.store.interrupt import interrupted_by
from tests.support.numbered import NumberedSamples, loader_of

NEVER_SECONDS = 3600.0


class PairedSamples(NumberedSamples):
    """Samples whose groups are read in pairs; a group alone waits in vain."""

    def __init__(self, count):
        super().__init__([count])
        self._pair = threading.Barrier(2, timeout=30)

    def batch(self, numbers, parts=None):
        self._pair.wait()
        return super().batch(numbers, parts)


class EndlessSamples(NumberedSamples):
    """Samples whose first batch arrives; a stop ends all other reads, except one that may fail."""

    def __init__(self, count, failing=None):
        super().__init__([count])
        self.stopped = []
        self._failing = failing

    def batch(self, numbers, parts=None):
        samples = super().batch(numbers, parts)
        if 0 in numbers:
            return samples
        if self._failing in numbers:
            raise StoreError("store.unavailable", "it is away")
        try:
            interrupted_by().sleep(NEVER_SECONDS)
        except FatalError as error:
            self.stopped.append(error)
            raise


def test_the_next_group_is_read_before_a_group_has_arrived():
    loader = loader_of(PairedSamples(80), batch_size=8, memory_bytes=0)
    read = [key for batch in loader for key in batch["key"]]
    assert sorted(read) == [f"{number:06}" for number in range(80)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pin", [None, dict])
def test_the_end_of_an_iteration_stops_what_is_read_ahead(pin):
    samples, order = EndlessSamples(80), Shuffle("sequential")
    for _ in loader_of(samples, batch_size=8, memory_bytes=0, shuffle=order, pin=pin):
        break
    assert len(samples.stopped) == len(samples.reads) - 1 > 0


@pytest.mark.timeout(60)
def test_an_error_does_not_wait_for_the_next_group():
    samples, order = EndlessSamples(80, failing=8), Shuffle("sequential")
    batches = iter(loader_of(samples, batch_size=8, memory_bytes=0, shuffle=order))
    next(batches)
    with pytest.raises(StoreError):
        next(batches)


@pytest.mark.timeout(60)
def test_the_end_of_an_iteration_in_a_loader_worker_stops_what_is_read_ahead():
    samples, order = EndlessSamples(80), Shuffle("sequential")
    batches = loader_of(samples, batch_size=8, memory_bytes=0, shuffle=order).make(range(10))
    next(batches)
    batches.close()
    assert len(samples.stopped) == len(samples.reads) - 1 > 0
