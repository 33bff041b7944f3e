"""Pipes and devices in place of files, limits of file sizes, and refused deletions."""

from __future__ import annotations

import errno
import os
import resource

import pytest

from larder.disk import disk_errors
from larder.errors import ObjectError
from larder.store import open_store
from tests.support.errors import larder_error


@pytest.mark.parametrize(
    ("number", "limit", "said"),
    [
        (errno.ENOSPC, 4096, "no space"),
        (errno.ENOSPC, resource.RLIM_INFINITY, "no space"),
        (errno.EDQUOT, 4096, "quota"),
        (errno.EFBIG, 4096, "4,096 bytes"),
        (errno.EFBIG, resource.RLIM_INFINITY, "file system"),
    ],
)
def test_why_a_file_cannot_grow(number, limit, said, monkeypatch, tmp_path):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    with larder_error("store.full") as caught, disk_errors(tmp_path):
        raise OSError(number, os.strerror(number))
    assert said in caught.value.message


def test_a_deletion_through_a_link_is_not_called_a_creation(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root/out").symlink_to(tmp_path)
    (tmp_path / "kept").write_bytes(b"")
    with pytest.raises(ObjectError) as caught:
        open_store(str(tmp_path / "root"), retry=None).delete("out/kept")
    assert caught.value.code == "object.bad_key"
    assert "create" not in caught.value.message
    assert (tmp_path / "kept").exists()
