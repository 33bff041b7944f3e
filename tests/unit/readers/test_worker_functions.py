"""Functions of the user in processes: what they draw, raise and keep, and when they are sent."""

import os
import threading
import traceback

import pytest

import larder
from larder.errors import FatalError, ObjectError
from larder.readers import loader as loaders
from larder.readers import loader_workers
from larder.readers.batch_decoding import Decoding
from tests.support.numbered import NumberedSamples, loader_of

SHARDS = (400,)


def made(map_=None, count=2, **options):
    decode = None if map_ is None else Decoding(map=map_)
    given = {"batch_size": 8, "workers": count, "decode": decode} | options
    return loader_of(NumberedSamples(SHARDS), **given)


pytestmark = pytest.mark.usefixtures("crew")


@pytest.fixture
def two_workers_by_default(monkeypatch):
    monkeypatch.setattr(loaders, "_FEW_SAMPLES", 0)
    monkeypatch.setattr(loaders, "usable_cores", lambda: 3)


SEEDED = """
import random
import numpy as np
random.seed(42)
np.random.seed(42)

def drawn(sample, rng):
    return {"of_numpy": np.random.randint(1 << 40), "of_python": random.getrandbits(40)}
"""


def test_a_module_that_seeds_generators_draws_others_in_each_process(tmp_path, monkeypatch):
    (tmp_path / "seeded_by_its_user.py").write_text(SEEDED)
    monkeypatch.syspath_prepend(tmp_path)
    import seeded_by_its_user

    for name in ("of_numpy", "of_python"):
        batches = list(made(seeded_by_its_user.drawn, 3))
        values = [value for batch in batches for value in batch[name]]
        assert len(set(values)) == len(values) == 400


def process_of(sample, _):
    return {"key": sample["key"], "process": os.getpid()}


@pytest.mark.usefixtures("two_workers_by_default")
@pytest.mark.parametrize("kind", ["map", "transforms", "collate", "mix"])
def test_a_function_is_never_called_by_threads_first_and_then_by_processes(kind):
    given = {
        "map": {"decode": Decoding(map=process_of)},
        "transforms": {"decode": Decoding(transforms={"txt": process_here})},
        "collate": {"collate": collated},
        "mix": {"decode": Decoding(map=process_of)},
    }
    loader = made(None, None, **given[kind])
    if kind == "mix":
        loader = larder.mix([(loader, 1)])
    seen = [
        value for batch in loader for value in batch["txt" if kind == "transforms" else "process"]
    ]
    assert len(seen) == 400
    assert os.getpid() not in seen


def process_here(_):
    return os.getpid()


def collated(samples):
    return {"process": [os.getpid() for _ in samples]}


class Epoch:
    """Returns its number, and how many loaders the process has; cannot be loaded if negative."""

    def __init__(self):
        self.number = 0

    def __call__(self, sample, rng):
        return {"number": self.number, "loaders": len(loader_workers._loaders)}

    def __setstate__(self, state):
        if state["number"] < 0:
            raise ValueError("not now")
        self.__dict__ = state


def test_an_object_that_has_changed_is_sent_again_and_processes_keep_its_last_state():
    epoch, sent = Epoch(), []
    loader = loader_of(NumberedSamples((64,)), batch_size=8, workers=1, decode=Decoding(map=epoch))
    for epoch.number in [0, 0, *range(20)]:
        numbers = [(*batch["number"], *batch["loaders"]) for batch in loader]
        assert numbers == [(epoch.number,) * 8 + (1,) * 8] * 8
        sent.append(loader._work[-1].token)
    assert len(set(sent)) == 20, "not if it is the same"
    epoch.number = -1
    with pytest.raises(Exception, match="cannot load the loader"):
        next(iter(loader))
    epoch.number = 20
    assert set(loader.batch(3)["number"]) == {20}, "as Keras asks for it"


class TwoArgumentsError(Exception):
    def __init__(self, name, number):
        super().__init__(f"{name} has no {number}")
        self.name = name


class DefaultArgumentError(Exception):
    def __init__(self, name, more="!"):
        super().__init__(f"no {name}{more}")


class HoldingError(Exception):
    """Cannot be pickled at all."""

    def __init__(self, name):
        super().__init__(f"held {name}")
        self.lock = threading.Lock()


def two_arguments(samples):
    raise TwoArgumentsError("sample", len(samples))


def default_argument(samples):
    raise DefaultArgumentError(len(samples))


def holding(samples):
    raise HoldingError(len(samples))


def exhausted(samples):
    return next(iter(samples[:0]))


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize(
    ("collate", "kind", "text"),
    [
        (exhausted, RuntimeError, "raised StopIteration"),
        (two_arguments, TwoArgumentsError, "sample has no 8"),
        (default_argument, DefaultArgumentError, "no 8!"),
        (holding, (HoldingError, FatalError), "held 8"),
    ],
)
def test_an_error_keeps_its_class_its_text_and_the_line_that_raised_it(collate, kind, text, count):
    with pytest.raises(kind) as caught:
        list(made(None, count, collate=collate))
    assert text in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value))
    assert f"in {collate.__name__}" in shown
    assert "test_worker_functions.py" in shown
    if collate is two_arguments:
        assert caught.value.name == "sample"


def mistaken(sample, _=None):
    return sample.no_such_attribute


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("decode", [Decoding(map=mistaken), Decoding(transforms={"txt": mistaken})])
def test_a_mistake_in_a_function_shows_its_line_and_no_fault_of_the_data(decode, count):
    with pytest.raises(ObjectError) as caught:
        list(made(None, count, decode=decode))
    assert "no_such_attribute" in caught.value.message
    assert "prepare" not in caught.value.hint
    shown = "".join(traceback.format_exception(caught.value))
    assert "return sample.no_such_attribute" in shown


BROKEN = """
table = {}["missing"]

def same(sample, rng):
    return sample
"""


def test_a_module_that_fails_in_a_process_alone_shows_its_line(tmp_path, monkeypatch):
    path = tmp_path / "broken_of_its_user.py"
    path.write_text(BROKEN.replace('{}["missing"]', "1"))
    monkeypatch.syspath_prepend(tmp_path)
    import broken_of_its_user

    path.write_text(BROKEN)
    with pytest.raises(Exception, match="KeyError") as caught:
        list(made(broken_of_its_user.same, 1))
    shown = "".join(traceback.format_exception(caught.value))
    assert 'table = {}["missing"]' in shown
