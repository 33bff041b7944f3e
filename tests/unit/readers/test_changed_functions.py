"""A loader whose functions change is sent to its processes again, in place of the one before."""

import pytest

from larder.readers import workers
from larder.readers.batches import Decoding
from tests.support.numbered import NumberedSamples, loader_of


@pytest.fixture(autouse=True)
def crew(monkeypatch):
    """Of this test alone."""
    crew = workers.Crew()
    monkeypatch.setattr(workers, "_crew", crew)
    yield
    crew.stop()


class Epoch:
    """Returns its number, and how many loaders the process has; cannot be loaded if negative."""

    def __init__(self):
        self.number = 0

    def __call__(self, sample, rng):
        return {"number": self.number, "loaders": len(workers._loaders)}

    def __setstate__(self, state):
        if state["number"] < 0:
            raise ValueError("not now")
        self.__dict__ = state


def test_processes_keep_the_last_of_many_states_of_a_loader():
    epoch = Epoch()
    loader = loader_of(NumberedSamples((64,)), batch_size=8, workers=1, decode=Decoding(map=epoch))
    for epoch.number in range(20):
        made = [(*batch["number"], *batch["loaders"]) for batch in loader]
        assert made == [(epoch.number,) * 8 + (1,) * 8] * 8
    epoch.number = -1
    with pytest.raises(Exception, match="cannot load the loader"):
        next(iter(loader))
    epoch.number = 20
    assert set(next(iter(loader))["number"]) == {20}
