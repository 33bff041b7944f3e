"""pycurl with its own libcurl, even if another package has loaded a libcurl before.

TensorFlow exports its libcurl and its TLS library to libraries loaded later. pycurl would use these
functions, and refuse their release.
"""

from __future__ import annotations

import ctypes
import os
import sys
from types import ModuleType

from larder.errors import ConfigError

_GLOBAL_ALL = 3


def _import_pycurl() -> ModuleType:
    """Import pycurl; beside another libcurl, resolve its symbols in its own libraries first."""
    loaded, before = ctypes.CDLL(None), sys.getdlopenflags()
    is_hidden = "pycurl" not in sys.modules and hasattr(loaded, "curl_easy_init")
    deep = getattr(os, "RTLD_DEEPBIND", 0) if is_hidden else 0  # only in glibc
    sys.setdlopenflags(before | deep)
    try:
        import pycurl
    except ImportError as error:
        message = f"pycurl cannot be imported: {error}"
        hint = "import it before TensorFlow and Keras, or install it again"
        raise ConfigError("config.missing_package", message, hint=hint) from error
    finally:
        sys.setdlopenflags(before)
    if deep:
        _share_allocator(sys.modules.get("pycurl._pycurl", pycurl), loaded)
    module: ModuleType = pycurl
    return module


def _share_allocator(extension: ModuleType, loaded: ctypes.CDLL) -> None:
    """Give libcurl the allocator of the process, which may be tcmalloc or jemalloc.

    libcurl has found glibc's allocator, and would free with it memory that glibc allocated with the
    process's.
    """
    libcurl = ctypes.CDLL(extension.__file__)
    libcurl.curl_global_cleanup()  # libcurl keeps the first allocator until then
    names = ("malloc", "free", "realloc", "strdup", "calloc")
    libcurl.curl_global_init_mem(_GLOBAL_ALL, *(getattr(loaded, name) for name in names))


pycurl = _import_pycurl()
