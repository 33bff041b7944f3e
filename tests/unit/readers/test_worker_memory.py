"""The memory that processes share with training: after a fork, after errors, and how many files."""

import gc
import os
import threading
from contextlib import suppress

import numpy as np
import pytest

from larder.readers import batch_decoding, loader_workers
from larder.readers.batch_decoding import Decoding
from larder.readers.slots import SharedMemory, _lending
from tests.support.errors import larder_error
from tests.support.numbered import NumberedSamples, loader_of
from tests.support.processes import run_python

SHARDS = (400,)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("crew"),
]


def made(transform=None, count=1, **options):
    decode = None if transform is None else Decoding(transforms={"txt": transform})
    given = {"batch_size": 8, "workers": count, "decode": decode} | options
    return loader_of(NumberedSamples(SHARDS), **given)


def pixels(value):
    return np.full((64, 64), int(value) % 251, np.uint8)


def failing(value):
    if int(value) % 3 == 1:
        raise ValueError("no number of mine")
    return pixels(value)


def slots():
    gc.collect()
    return [each._slots for each in loader_workers.shared_workers()._workers]


def in_a_child(check):
    """Fork a child; returns a function that has it check something, and says whether it held."""
    asked, ask = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.read(asked, 1)
            status = 0 if check() else 1
        finally:
            os._exit(status)

    def answer():
        os.write(ask, b"!")
        os.close(ask)
        os.close(asked)
        return os.waitpid(child, 0)[1] == 0

    return answer


def test_a_child_and_its_parent_write_to_batches_of_their_own():
    batches = iter(made(pixels))
    held = [next(batches)["txt"]]
    expected = held[0].copy()

    def write():
        is_same = np.array_equal(held[0], expected)
        held[0][:] = 255
        return is_same

    assert in_a_child(write)()
    assert np.array_equal(held[0], expected)
    held[0] += 1
    expected += 1
    answer = in_a_child(write)
    assert np.array_equal(held[0], expected)
    held[0][:] = 0
    assert answer()
    assert not held[0].any()
    held.clear()
    rest = [batch["txt"].copy() for batch in batches]
    assert np.array_equal(rest, [batch["txt"] for batch in made(pixels, 0)][1:])


def left():
    next(iter(made(pixels)))


def failed():
    with larder_error("sample.undecodable"):
        list(made(failing))


def forked():
    for batch in made(pixels, batch_size=100):
        assert in_a_child(batch["txt"].any)()


@pytest.mark.parametrize("use", [left, failed, forked])
def test_iterations_give_the_memory_of_their_batches_back(use):
    list(made(pixels))
    use()
    before = slots()
    for _ in range(3):
        use()
    assert slots() == before


def test_no_thread_writes_to_the_memory_of_a_batch_that_has_failed(monkeypatch):
    monkeypatch.setattr(batch_decoding, "_cores", lambda: 2)
    called = set()

    def no_dictionary(sample, rng):
        called.add(sample["key"])

    keys = [f"{number:03}" for number in range(500)]
    with larder_error("config.invalid_value", "map"):
        Decoding(map=no_dictionary)({"key": keys})
    assert called == set(keys), "nothing is left to a thread"


def test_a_process_has_three_files_here_for_any_number_of_loaders():
    before = open_files()
    iterations = [iter(made(pixels)) for _ in range(3)]
    kept = [next(each) for each in iterations for _ in range(4)]
    assert len(open_files() - before) == 3
    assert len(kept) == 12


def open_files():
    """Those of this process; what another test has left may be closed at any time."""
    files = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            files.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return files


FEW_FILES = """
import os, resource
from larder.errors import FatalError
from tests.support.numbered import NumberedSamples, loader_of
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
for more in range(1, 12):
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Counted each time: until 3.11.3, Python leaves pipes open if a process cannot be started.
    used = len(os.listdir("/proc/self/fd")) - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, most))
    try:
        print(len(list(loader_of(NumberedSamples([40]), batch_size=8, workers=1))))
    except FatalError as error:
        print(error.code, "open files" in str(error))
"""


def test_too_few_open_files_are_named():
    done = run_python("-c", FEW_FILES)
    lines = done.stdout.split("\n")
    assert lines[0] == "run.limit True", done.stderr
    assert lines[-2] == "5"
    assert set(lines[:-1]) == {"run.limit True", "5"}


def test_memory_that_cannot_be_mapped_is_named():
    with larder_error("run.limit", "workers"):
        SharedMemory().slot(0, 1 << 56)  # more than there are addresses


def lendable():
    """Whether another thread can be lent a slot now."""
    answers = []

    def ask():
        if is_free := _lending.acquire(blocking=False):
            _lending.release()
        answers.append(is_free)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return answers.pop()


def test_no_thread_is_lent_a_slot_between_the_copies_and_the_fork(monkeypatch):
    memory, answers = SharedMemory(), []
    slot = memory.lent(1, 1, answers.append)
    copy = SharedMemory.before_fork

    def before_fork(each):
        copy(each)
        answers.append(lendable())

    with monkeypatch.context() as patched:
        patched.setattr(SharedMemory, "before_fork", before_fork)
        child = os.fork()
        if not child:
            slot[0] = 1
            os._exit(0 if lendable() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert False in answers
    assert True not in answers
    assert lendable()
    assert not np.any(slot)
