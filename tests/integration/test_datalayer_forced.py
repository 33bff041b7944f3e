"""`larder cache rm --force` of a cache that machines have leases of."""

import subprocess
import sys

from larder.cli.main import dispatch
from larder.datalayer.catalog import list_caches
from larder.store import open_store
from tests.support.errors import larder_error

_READER = """
import sys
import larder
loader = larder.cache_train_dataset("d", "v1", storage=sys.argv[1])(lambda: range(10))()
print(len(list(loader)), flush=True)
sys.stdin.read()
"""


def test_a_lease_is_ended_but_no_process_that_reads(bucket):
    command = ["cache", "rm", "d", "v1", bucket]
    reader = subprocess.Popen(
        [sys.executable, "-c", _READER, bucket], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert reader.stdout
    assert reader.stdout.readline() == b"10\n"
    with larder_error("cache.in_use"):
        dispatch([*command, "--force"])
    reader.kill()
    reader.communicate()
    with larder_error("cache.in_use") as refused:
        dispatch(command)
    assert "--force" in refused.value.hint
    assert len(list_caches(bucket)["caches"]) == 1
    dispatch([*command, "--force"])
    assert [info for page in open_store(bucket).list() for info in page] == []
