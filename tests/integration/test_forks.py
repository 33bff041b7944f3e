"""What training reads with is imported before a process is forked."""

from typing import Any

import pytest
from pipeline_lab import directory_lab, png

from tests.support.processes import run_python

IMAGES = {f"{'ab'[number % 2]}/{number:02}.png": png(number, 200, 200) for number in range(12)}


IMPORTED = """
import sys, larder
loader = larder.open(sys.argv[1]).loader("train", batch_size=4, **eval(sys.argv[2]))
before = set(sys.modules)
list(loader)
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.push
@pytest.mark.parametrize("cache", [{"records": "decoded"}, None], ids=["cache", "shards"])
def test_threads_that_read_import_nothing(tmp_path, cache):
    """A child that is forked during an import waits for that module for ever."""
    lab = directory_lab(tmp_path, IMAGES, validate="decode", cache=cache)
    lab.prepare()
    options: dict[str, Any] = {} if cache else {"decode": True, "size": 32}
    done = run_python("-c", IMPORTED, f"{lab.storage}/larder/d", options)
    assert done.stdout == "[]\n", done.stderr
