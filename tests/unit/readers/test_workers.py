"""The processes of loaders: killed, interrupted, left; what they hand over; when there are none."""

import errno
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import types
import weakref
from contextlib import contextmanager

import numpy as np
import pytest

from larder.errors import ObjectError
from larder.readers import batch_decoding, loader_workers
from larder.readers import loader as loaders
from larder.readers.batch_decoding import Decoding
from larder.readers.launcher import ranks_of_machine
from larder.readers.slots import SharedMemory, SlotWriter, read_value
from tests.support.errors import larder_error
from tests.support.numbered import NumberedSamples, loader_of
from tests.support.processes import is_running, run_python, wait_until

SHARDS = (200, 30, 170)


def made(count=2, transform=None, **options):
    decode = None if transform is None else Decoding(transforms={"txt": transform})
    given = {"batch_size": 8, "workers": count, "decode": decode} | options
    return loader_of(NumberedSamples(SHARDS), **given)


def keys(batches):
    return [batch["key"] for batch in batches]


def pixels(value):
    return np.full((4, 4), int(value) % 256, np.uint8)


def of_other_sizes(value):
    return np.arange(int(value) % 3)


def failing(value):
    raise MemoryError(value.decode())


@pytest.mark.parametrize("transform", [None, pixels, of_other_sizes])
def test_batches_that_training_keeps_stay_as_they_were(transform):
    """More of them than there are slots."""
    kept, expected = list(made(2, transform)), list(made(0, transform))
    for one, other in zip(kept, expected, strict=True):
        assert one["key"] == other["key"]
        assert np.array_equal(one["label"], other["label"])
        assert type(one["txt"]) is type(other["txt"])
        for value, same in zip(one["txt"], other["txt"], strict=True):
            assert np.array_equal(value, same)
        one["label"] += 1  # they may be changed, as those of threads


def test_other_errors_are_those_of_the_process():
    with pytest.raises(MemoryError, match=r"^[0-9]+$"):
        list(made(2, failing))


@pytest.mark.usefixtures("crew")
def test_processes_go_on_with_the_next_epoch_until_the_loader_is_gone():
    loader, lanes = made(), [each._lanes for each in loader_workers.shared_workers()._workers]
    before = [len(each) for each in lanes]
    keys(loader)
    assert [len(each) for each in lanes] == [each + 1 for each in before]
    assert all(len(each[-1].waiting) + len(each[-1]._ready) == 1 for each in lanes)
    loader.skip(0)
    other = made(0)
    other.skip(len(other))
    assert keys(loader) == keys(other)
    del loader
    gc.collect()
    assert [len(each) for each in lanes] == before


def test_what_pins_a_batch_is_called_ahead_by_a_thread_of_this_process():
    threads = set()

    def pinned(batch):
        threads.add(threading.current_thread())
        return batch | {"pinned": True}

    loader = made(2, pin=pinned)
    for number, batch in enumerate(loader, 1):
        assert batch["pinned"]
        assert loader.batches == number, "what was delivered counts"
    assert threading.current_thread() not in threads


ORPHANS = """
import os, sys
from tests.support.numbered import NumberedSamples, loader_of
from tests.support.processes import children
batches = iter(loader_of(NumberedSamples([400]), batch_size=4, workers=2))
next(batches)
print(*children(os.getpid()), flush=True)
os.kill(os.getpid(), 9)
"""


def test_nothing_is_left_of_a_program_that_was_killed():
    before = set(os.listdir("/dev/shm"))
    done = run_python("-c", ORPHANS)
    assert done.returncode == -signal.SIGKILL
    started = [int(pid) for pid in done.stdout.split()]
    assert len(started) == 2
    wait_until(lambda: not any(map(is_running, started)))
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "larder" in name]


def test_functions_that_only_this_process_has_are_for_its_threads(caplog, monkeypatch):
    with larder_error("config.invalid_value", "workers"):
        list(made(2, lambda value: value))
    monkeypatch.setattr(loaders, "_FEW_SAMPLES", 0)
    monkeypatch.setattr(loaders, "usable_cores", lambda: 3)
    local = made(None, lambda value: value)
    with caplog.at_level(logging.WARNING, "larder"):
        assert keys(local) == keys(made(0))
    assert "threads make the batches" in caplog.text
    monkeypatch.setattr(sys.modules["__main__"], "odd", pixels, raising=False)
    monkeypatch.setattr(pixels, "__module__", "__main__")
    monkeypatch.setattr(pixels, "__qualname__", "odd")
    with larder_error("config.invalid_value", "workers"):
        list(made(2, pixels))


@pytest.mark.usefixtures("crew")
def test_threads_take_over_where_no_process_can_be_started(caplog, monkeypatch):
    def refused(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(loaders, "_FEW_SAMPLES", 0)
    monkeypatch.setattr(loaders, "usable_cores", lambda: 3)
    monkeypatch.setattr(subprocess, "Popen", refused)
    by_default, by_threads = made(None, pixels), made(0)
    for _ in range(2):
        assert keys(by_default) == keys(by_threads)
    assert "no process can be started" in caplog.text
    with larder_error("run.limit"):
        list(made(2, pixels))


@pytest.mark.usefixtures("crew")
def test_memory_that_cannot_be_shared_is_named(monkeypatch):
    def refused(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "memfd_create", refused)
    with larder_error("run.limit", "workers"):
        list(made(2))


def test_a_module_that_processes_cannot_import_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "only_here", module := types.ModuleType("only_here"))
    exec("def same(value): return value", vars(module))
    loader = made(2, module.same)
    for _ in range(2):
        with larder_error("config.invalid_value", "workers") as caught:
            list(loader)
        assert "only_here" in caught.value.message
    assert keys(made(2)) == keys(made(0)), "others go on"


def test_by_default_there_are_processes_for_what_takes_long(monkeypatch):
    monkeypatch.setattr(loaders, "usable_cores", lambda: 8)
    assert made(None, pixels).workers == 0, "a few hundred samples"
    monkeypatch.setattr(loaders, "_FEW_SAMPLES", 0)
    assert made(None).workers == 0, "nothing is decoded"
    assert made(None, pixels).workers == 7
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert made(None, pixels).workers == 3
    assert ranks_of_machine() == 2
    monkeypatch.setattr(loaders, "usable_cores", lambda: 2)
    assert made(None, pixels).workers == 0


@pytest.mark.usefixtures("crew")
def test_processes_start_only_for_those_who_take_more_than_a_look(monkeypatch):
    monkeypatch.setattr(loaders, "_FEW_SAMPLES", 0)
    monkeypatch.setattr(loaders, "usable_cores", lambda: 3)
    decode = Decoding(columns=["key", "txt"])
    loader, expected = made(None, decode=decode), keys(made(0))
    for _, _ in zip(range(2), loader, strict=False):
        assert not loader_workers.shared_workers().has(1)
    assert keys(loader) == expected
    assert loader_workers.shared_workers().has(2)
    assert keys(loader) != expected


_seen = []


def stopping(value):
    """Ends the iteration 7, as its parent does, at the second sample."""
    _seen.append(value)
    if len(_seen) == 3:
        loader_workers._End(loader_workers._memory(_seen[0]), 7).stop()
    return value


def test_a_batch_in_progress_ends_with_its_iteration(monkeypatch):
    monkeypatch.setattr(loader_workers, "_loaders", {1: made(0, stopping)})
    monkeypatch.setattr(batch_decoding, "_cores", lambda: 1)
    memory = SharedMemory()
    _seen[:] = [memory.descriptor]
    loader_workers.begin(7, 1, None, range(2))
    with larder_error("run.interrupted"):
        loader_workers.make(7, memory.descriptor, 1)
    assert len(_seen) == 3, "the descriptor and two of 8 samples"
    assert loader_workers.make(7, memory.descriptor, 1) is None
    loader_workers._memory.cache_clear()
    os.close(memory.descriptor)


@pytest.mark.parametrize("cores", [1, 2])
def test_an_error_of_a_function_does_not_keep_its_batch(cores, monkeypatch):
    monkeypatch.setattr(batch_decoding, "_cores", lambda: cores)
    batch = {"key": ["a", "b"], "txt": [b"1", b"2"]}
    errors = []
    with gc_off():
        try:
            Decoding(transforms={"txt": failing_softly})(batch)
        except ObjectError as error:
            errors.append(weakref.ref(error))
        assert errors[0]() is None


def failing_softly(value):
    raise ValueError(value)


def test_samples_that_are_left_out_do_not_keep_their_batch(monkeypatch):
    errors = []

    class OddError(Exception):
        def __init__(self, value):
            errors.append(weakref.ref(self))

    def odd(value):
        if int(value) % 3 == 0:
            raise OddError(value)
        return value

    monkeypatch.setattr(batch_decoding, "_cores", lambda: 1)
    with gc_off():
        assert len(list(made(0, odd, on_error="skip"))) == sum(SHARDS) / 8
        assert len(errors) > 100
        assert not [each for each in errors if each() is not None]


@contextmanager
def gc_off():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_a_value_of_any_kind_goes_through_a_slot():
    memory = SharedMemory()
    other = SharedMemory(os.dup(memory.descriptor))
    value = {
        "key": ["a", "b"],
        "bytes": [b"", None, b"x" * 3_000_000],
        "empty": np.zeros((0, 3)),
        "ragged": [np.arange(3), np.ones((2, 2), np.float16)],
        "objects": np.array([{"a": 1}, None], object),
        "strided": np.arange(20).reshape(4, 5)[:, ::2],
    }
    layouts = []
    for slot in (1, 2):
        writer = SlotWriter(memory, slot)
        value["made"] = writer.empty((3, 5), np.int32)
        value["made"][:] = slot
        value["large"] = writer.empty((1 << 20,), np.int32)
        value["large"][:] = slot
        layouts.append(writer.write(value))
    for slot, layout in enumerate(layouts, 1):
        for copy in (None, np.copy):
            read = read_value(other.slot(slot, layout.bytes), layout, copy)
            assert list(read) == list(value)
            assert (read["made"] == slot).all()
            assert (read["large"] == slot).all()
            assert read["bytes"] == value["bytes"]
            for name in ("empty", "objects", "strided"):
                assert np.array_equal(read[name], value[name])
            assert [each.dtype for each in read["ragged"]] == [np.int64, np.float16]
    assert all(start % 64 == 0 for start, _ in layouts[0].spans)
    for each in (memory, other):
        os.close(each.descriptor)
