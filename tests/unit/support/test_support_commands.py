"""The complete output of a command that is watched."""

from __future__ import annotations

from pathlib import Path

from tests.support.commands import Workplace


def test_output_written_together_with_an_awaited_line_is_not_lost(tmp_path: Path) -> None:
    text = "import sys; sys.stderr.write('one\\ntwo\\nthree\\n'); print('out')"
    running = Workplace(tmp_path).start(python=("-c", text))
    assert running.read_until("one") == "one"
    done = running.wait()
    assert (done.status, done.out, done.err) == (0, "out\n", "two\nthree\n")
