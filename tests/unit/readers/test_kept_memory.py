"""Memory of batches that are gone: the next batches get it, and nothing holds it meanwhile."""

import os
import platform
import weakref

import pytest

from larder.readers.options import Shuffle
from tests.support.numbered import NumberedSamples, loader_of
from tests.support.processes import run_python

_PROGRAM = """
import resource
from larder.readers.memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_freed_memory()
parts = [bytes([1]) * 200_000 for _ in range(40)]
before = faults()
del parts
parts = [bytes([1]) * 200_000 for _ in range(40)]
print((faults() - before) * resource.getpagesize())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators decide otherwise")
def test_parts_get_the_memory_of_parts_that_are_gone(monkeypatch):
    # In a process of its own: this one may have freed a large block, or have limits of its own.
    for name in [*os.environ]:
        if name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")):
            monkeypatch.delenv(name)
    assert int(run_python("-c", _PROGRAM).stdout) < 2_000_000


class _Parts(dict):
    """Parts to which weak references can be made."""


class _NotedSamples(NumberedSamples):
    def batch(self, numbers, parts=None):
        samples = [one._replace(parts=_Parts(one.parts)) for one in super().batch(numbers)]
        self.noted |= {int(one.key): weakref.ref(one.parts) for one in samples}
        return samples


def test_a_batch_is_gone_before_the_others_of_its_group():
    samples = _NotedSamples([100])
    samples.noted = {}
    order = Shuffle("sequential")
    batches = loader_of(samples, batch_size=10, memory_bytes=1_000_000, shuffle=order)
    for number, _ in enumerate(batches.make(range(10))):
        alive = [reference() is not None for _, reference in sorted(samples.noted.items())]
        assert not any(alive[: number * 10])
        assert all(alive[number * 10 :])
    assert sorted(samples.reads) == [10, 90]
