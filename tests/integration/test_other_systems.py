"""Features of Linux are not needed: a run in a Python without them, as on macOS."""

import pytest
from pipeline_lab import write

from tests.support.processes import run_python

# Of the modules of the standard library: https://docs.python.org/3.13/library/os.html
ONLY_LINUX = {
    "os": (
        "O_DIRECT O_LARGEFILE O_NOATIME O_PATH O_RSYNC O_TMPFILE copy_file_range eventfd fdatasync "
        "getrandom getresgid getresuid getxattr listxattr memfd_create pidfd_open pipe2 "
        "posix_fadvise posix_fallocate process_cpu_count removexattr sched_getaffinity "
        "sched_setaffinity setns setxattr splice unshare"
    ),
    "fcntl": "F_ADD_SEALS F_GETPIPE_SZ F_OFD_SETLK F_OFD_SETLKW F_SETPIPE_SZ",
    "errno": "EBADFD EISNAM ENOKEY ERESTART EREMOTEIO",
    "signal": "SIGPOLL SIGPWR SIGRTMAX SIGRTMIN SIGSTKFLT sigtimedwait sigwaitinfo",
    "socket": "SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED",
    "select": "epoll",
    "time": "CLOCK_BOOTTIME",
}

RUN = """
import importlib, os, sys
for module, names in ONLY_LINUX.items():
    for name in names.split():
        vars(importlib.import_module(module)).pop(name, None)
assert not hasattr(os, "copy_file_range")
from pathlib import Path
import larder
from larder.pipeline.preparing import prepare
from tests.support.runs import run_settings

folder = Path(sys.argv[1])
settings = run_settings(
    folder / "source", folder / "local", folder / "out", cache={"records": "encoded"}
)
assert prepare(settings)["status"] == "built"
data = larder.open(folder / "local" / "larder" / "d")
assert len(data.cache("train", verify=True)) == 3
assert prepare(settings)["status"] == "reused"
"""


@pytest.mark.push
def test_a_run_without_linux_features(tmp_path):
    write(tmp_path / "source", {f"{name}.bin": name.encode() for name in "abc"})
    done = run_python("-c", f"ONLY_LINUX = {ONLY_LINUX!r}\n{RUN}", tmp_path)
    assert done.returncode == 0, done.stderr
