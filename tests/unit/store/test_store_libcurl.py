"""pycurl beside another libcurl that is shown to all libraries, as TensorFlow's is."""

import builtins
import os
import subprocess
import sys
from ctypes.util import find_library

import pycurl
import pytest

from larder.store import libcurl
from tests.support.errors import larder_error

ASK = """
import ctypes, sys

endpoint, library = sys.argv[1:]
ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
flags = sys.getdlopenflags()
from larder.store.http import Http

assert sys.getdlopenflags() == flags
http = Http(endpoint, connect_seconds=60, silence_seconds=60)
print([http.request("GET", "/", {"x": "y"}).status for _ in range(20)])
"""
ANOTHER = find_library("curl") or find_library("curl-gnutls")
ALLOCATORS = ["", *filter(None, map(find_library, ("tcmalloc_minimal", "jemalloc")))]


@pytest.mark.skipif(not ANOTHER, reason="the system has no libcurl")
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_requests_beside_another_libcurl_and_with_another_allocator(rclone_server, allocator):
    command = [sys.executable, "-c", ASK, rclone_server.endpoint, str(ANOTHER)]
    environment = os.environ | {"LD_PRELOAD": allocator}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{[400] * 20}\n"


def test_without_the_flag_of_glibc_the_import_is_a_plain_one(monkeypatch):
    monkeypatch.delattr(os, "RTLD_DEEPBIND", raising=False)
    assert libcurl._import_pycurl() is pycurl


def test_a_pycurl_that_cannot_be_imported_is_named_with_the_way_out(monkeypatch):
    flags, real = sys.getdlopenflags(), builtins.__import__

    def refusing(name, *others):
        if name == "pycurl":
            raise ImportError("libcurl link-time version (8.11.0) is older")
        return real(name, *others)

    monkeypatch.setattr(builtins, "__import__", refusing)
    with larder_error("config.missing_package"):
        libcurl._import_pycurl()
    assert sys.getdlopenflags() == flags
