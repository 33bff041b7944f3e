"""Memory of parts that were used is not returned to the system and taken from it again."""

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import resource
from larder.readers.memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_freed_memory()
parts = [bytes([1]) * 200_000 for _ in range(100)]
before = faults()
del parts
parts = [bytes([1]) * 200_000 for _ in range(100)]
print((faults() - before) * resource.getpagesize())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators decide otherwise")
def test_parts_reuse_the_memory_of_parts_that_are_gone():
    # In a process of its own: this one may have freed a large block.
    command = [sys.executable, "-c", _PROGRAM]
    taken_bytes = int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert taken_bytes < 2_000_000
