"""Slots are not lent while a process forks: the child would share them with its parent."""

import os
import threading

import numpy as np
import pytest

from larder.readers.slots import SharedMemory, _lending

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


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
