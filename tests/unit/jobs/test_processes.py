"""Programs of Larder: what they import, their memory, and calls that they cannot receive."""

import gc
import os
import resource
import subprocess
import sys

import pytest

from larder.jobs.processes import _PROGRAM, Process, _FunctionCall, _write
from tests.support.errors import larder_error
from tests.support.processes import CHECKOUT

SHADOWS = ("queue", "random", "pickle", "numpy")


@pytest.fixture
def program(tmp_path):
    """Runs a program of a folder in another one, which has modules with names of others."""
    (there := tmp_path / "there").mkdir()
    (here := tmp_path / "here").mkdir()
    for name in SHADOWS:
        (here / f"{name}.py").write_text("raise SystemExit('of the working directory')")

    def run(text, *options, **modules):
        for name, content in modules.items():
            (there / f"{name}.py").write_text(content)
        path = there / "train.py"
        path.write_text(f"import sys; sys.path.append({str(CHECKOUT)!r})\n{text}")
        done = subprocess.run(
            [sys.executable, *options, str(path)],
            cwd=here,
            env=dict(os.environ) | {"PYTHONPATH": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


READS = """
from tests.support.numbered import NumberedSamples, loader_of
from larder.readers.batch_decoding import Decoding
import mine
decode = Decoding(map=mine.double)
loader = loader_of(NumberedSamples((64,)), batch_size=8, workers=1, decode=decode)
print(sum(value for batch in loader for value in batch["double"]))
"""

MINE = """
def double(sample, rng):
    return {"double": 2 * int(sample["txt"])}
"""


def test_modules_are_those_of_the_program_and_not_of_the_working_directory(program):
    assert program(READS, mine=MINE) == str(63 * 64)


def test_folders_that_the_program_adds_hide_no_module_of_the_standard_library(program):
    added = f"import queue, random, numpy, os\nsys.path.insert(0, os.getcwd())\n{READS}"
    assert program(added, mine=MINE) == str(63 * 64)


CALLS = """
import os, sys
from larder.jobs.processes import Process
import mine
print(Process().call(os.getcwd) == os.getcwd(), Process().call(mine.double, {"txt": 4}, None))
"""


def test_a_process_imports_what_its_parent_does_before_it_is_sent_anything(program):
    assert program(CALLS, mine=MINE) == "True {'double': 8}"


def limit(more_bytes):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more_bytes, used + more_bytes))


def test_a_process_collects_garbage_from_its_first_call_on():
    process = Process()
    assert process.call(gc.isenabled)
    process.close()


def test_a_call_that_a_process_cannot_receive_ends_it(capfd):
    process = Process()
    process.call(limit, 16 << 20)
    with larder_error("run.failed"):
        process.call(len, b"x" * (64 << 20))
    assert not process.answered
    process.close()
    assert "MemoryError" in capfd.readouterr().err


def test_a_process_whose_parent_is_gone_says_nothing():
    """The process notices when it answers, because the call waits in its pipe until then."""
    reader, writer = os.pipe()
    command = [sys.executable, "-c", _PROGRAM, "1", os.getcwd(), *sys.path]
    pipes = {"stdin": subprocess.PIPE, "stdout": writer, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        os.close(reader)
        os.close(writer)
        _write(process.stdin, _FunctionCall("os:getpid", (), {}, ""))
        assert (process.wait(), process.stderr.read()) == (1, b"")
