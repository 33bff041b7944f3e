"""Groups of batches that are read at once, and end with the iteration."""

import gc
import threading
import weakref
from contextlib import suppress
from functools import partial

import pytest

from larder.errors import DamageError, FatalError, LarderError, ObjectError, StoreError
from larder.readers.batch_decoding import Decoding
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
    """Samples whose first batch arrives; a stop ends all other reads, except one that may fail.

    Other batches may be damaged, so that samples are read one by one.
    """

    def __init__(self, count, failing=None, damaged=False):
        super().__init__([count])
        self.begun = threading.Event()
        self.stopped = []
        self._failing = failing
        self._damaged = damaged

    def batch(self, numbers, parts=None):
        samples = super().batch(numbers, parts)
        if 0 in numbers:
            return samples
        if self._failing in numbers:
            raise StoreError("store.unavailable", "it is away")
        if self._damaged and len(numbers) > 1:
            raise DamageError("damage.record", "a part differs")
        self.begun.set()
        try:
            interrupted_by().sleep(NEVER_SECONDS)
        except FatalError:
            self.stopped.append(True)
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
def test_the_end_of_an_iteration_stops_the_search_for_readable_samples():
    samples, order = EndlessSamples(80, damaged=True), Shuffle("sequential")
    for _ in loader_of(samples, batch_size=8, memory_bytes=0, shuffle=order, on_error="skip"):
        assert samples.begun.wait(30)
        break
    assert samples.stopped


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


def refused(value):
    raise ObjectError("sample.undecodable", "it is none", where=value.decode())


UNDECODABLE = {"decode": Decoding(transforms={"txt": refused}), "workers": 1}


def take(samples, batches, options):
    loader = loader_of(samples, batch_size=8, memory_bytes=0, **options)
    with suppress(LarderError):
        for number, _ in enumerate(loader, 1):
            if number == batches:
                break


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("make", "batches", "options"),
    [
        (partial(EndlessSamples, 80), 1, {}),
        (partial(EndlessSamples, 80, failing=8), 2, {}),
        (partial(NumberedSamples, [80], bad=[8]), 2, {}),
        (partial(NumberedSamples, [80], bad=range(8, 80)), 2, {"on_error": "skip"}),
        (partial(NumberedSamples, [80]), 2, UNDECODABLE),
    ],
    ids=["left", "failed", "damaged", "all damaged", "undecodable"],
)
def test_an_iteration_that_ended_early_leaves_its_samples(make, batches, options, request):
    """Whatever is mapped for them is closed then, and not when the collector comes."""
    gc.disable()
    request.addfinalizer(gc.enable)
    gone = threading.Event()
    samples = make()
    weakref.finalize(samples, gone.set)
    take(samples, batches, options | {"shuffle": Shuffle("sequential")})
    del samples
    assert gone.wait(30)
