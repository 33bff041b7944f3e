"""Training goes on, or ends at once, whenever a signal reaches it or one of its processes."""

import os
import signal
import threading

import pytest

from larder.readers import workers
from tests.support.numbered import NumberedSamples, loader_of
from tests.support.processes import is_running


def made(count=2):
    return loader_of(NumberedSamples((200, 30, 170)), batch_size=8, workers=count)


def keys(batches):
    return [batch["key"] for batch in batches]


def processes():
    every = [each._process for each in workers.crew()._workers]
    return [each.process.pid for each in every if each and is_running(each.process.pid)]


def test_a_process_that_was_killed_is_replaced():
    loader, read = made(), []
    for number, batch in enumerate(loader):
        if number in (0, 7, 8, 30):
            os.kill(processes()[0], signal.SIGKILL)
        read.append(batch["key"])
    assert read == keys(made(0))


def test_an_interrupt_may_come_at_any_time():
    loader = made()
    expected = keys(made(0)) * 400
    read = []

    def train():
        for _ in range(400):
            loader.go_to(0, 0)
            read.extend(batch["key"] for batch in loader)

    threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        train()
    assert read == expected[: len(read)]
    loader.go_to(0, 0)
    assert keys(loader) == keys(made(0))
