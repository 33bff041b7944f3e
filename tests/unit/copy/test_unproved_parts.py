"""Parts for a server whose etags are the MD5s of whole objects: only these are compared."""

import os
from typing import Any

import pytest

from larder.budgets import ByteBudget
from larder.config.urls import Access
from larder.copy.allowance import CopyLimits
from larder.copy.engine import copy_batch
from larder.progress import NullProgress
from larder.store.local.store import LocalStore
from larder.store.s3 import S3Store
from larder.store.s3 import bucket as s3_bucket
from tests.support.servers import assemble_wrongly

_PART_BYTES = 5 << 20


@pytest.mark.parametrize("wrong", [False, True])
def test_parts_of_later_objects_have_no_md5_and_the_objects_are_proved(
    wrong, rclone_server, tmp_path, monkeypatch
):
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(os.urandom(_PART_BYTES + 7))
    rclone_server.create_bucket("unproved")
    access = Access(endpoint=rclone_server.endpoint, region=rclone_server.region)
    target = S3Store("unproved", "p", access)
    monkeypatch.setattr(target._bucket.account, "server", s3_bucket.S3Server())
    hashed, copied = [], {}
    send = s3_bucket.S3Bucket.send

    def noted(bucket: Any, method: str, call: Any, **options: Any) -> Any:
        if "partNumber" in (options.get("query") or {}):
            hashed.append((call.key, options["md5"] is not None))
        return send(bucket, method, call, **options)

    monkeypatch.setattr(s3_bucket.S3Bucket, "send", noted)
    source = LocalStore(tmp_path)
    objects = {info.key: info for page in source.list() for info in page}
    failures = []
    for name in ("first", "second"):
        if wrong and name == "second":
            assemble_wrongly(monkeypatch)
        limits = CopyLimits(concurrency=1, budget=ByteBudget(1 << 26), part_bytes=_PART_BYTES)
        failures += copy_batch(
            source,
            target,
            [objects[name]],
            prefix="",
            limits=limits,
            progress=NullProgress(),
            copied=lambda copy: copied.update({copy.key: copy.check}),
        )
    assert hashed == [("first", True)] * 2 + [("second", False)] * 2
    assert copied == ({"first": "md5"} if wrong else {"first": "md5", "second": "md5"})
    assert [failure.code for failure in failures] == ["object.mismatch"] * wrong
