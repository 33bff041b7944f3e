"""Training goes on, or ends at once, whenever a signal reaches it or one of its processes."""

import signal
import threading

import pytest

from tests.support.numbered import NumberedSamples, loader_of


def made(count=2):
    return loader_of(NumberedSamples((200, 30, 170)), batch_size=8, workers=count)


def keys(batches):
    return [batch["key"] for batch in batches]


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
