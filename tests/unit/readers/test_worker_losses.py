"""Processes that end or are interrupted: what other iterations of them have to do with it."""

import os
import signal

import pytest

from larder.readers import loader_workers
from larder.readers.batch_decoding import Decoding
from tests.support.errors import larder_error
from tests.support.numbered import NumberedSamples, loader_of


def made(transform=None, **options):
    decode = None if transform is None else Decoding(transforms={"txt": transform})
    given = {"batch_size": 8, "workers": 1, "decode": decode} | options
    return loader_of(NumberedSamples((400,)), **given)


def keys(batches):
    return [batch["key"] for batch in batches]


pytestmark = pytest.mark.usefixtures("crew")


def killing(value):
    """Ends the process at a batch that training has asked for, but does not wait for yet."""
    if int(value) in LATER:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


LATER = {int(key) for batch in list(made(workers=0))[4:6] for key in batch["key"]}


def test_validation_ends_though_a_batch_that_training_reads_ahead_ends_the_process():
    train = made(killing)
    batches = iter(train)
    seen = [next(batches) for _ in range(3)]  # the fifth is asked for
    assert keys(made()) == keys(made(workers=0)), "validation"
    with larder_error("run.failed", "train") as caught:
        seen += list(batches)
    assert "ended twice at batch 4:" in caught.value.message
    assert train.batches == 4
    assert keys(made()) == keys(made(workers=0)), "and again"


@pytest.mark.parametrize("where", ["close", "submit"])
def test_an_interrupt_while_an_iteration_is_closed_is_none_of_later_ones(crew, monkeypatch, where):
    """The second one: the first has left the iteration."""
    expected = keys(made(workers=0))
    loader = made()
    batches = iter(loader)
    next(batches)
    process, close = crew._workers[0]._process, loader_workers.Process.close
    function = getattr(loader_workers.Process, where)
    interrupts = iter([KeyboardInterrupt])

    def interrupted(process, *arguments, **named):
        for error in interrupts:
            raise error
        return function(process, *arguments, **named)

    monkeypatch.setattr(loader_workers.Process, where, interrupted)
    if where == "close":
        os.kill(process.process.pid, signal.SIGKILL)
        with pytest.raises(KeyboardInterrupt):
            list(batches)
    else:
        with pytest.raises(KeyboardInterrupt):
            batches.close()
    for again in (made(), loader):
        assert keys(again) == expected
    assert [len(each._lanes) for each in crew._workers] == [1], "which waits for the next epoch"
    close(process)
