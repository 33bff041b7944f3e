"""Parts for a server whose etags are MD5s of whole objects, which prove the parts together."""

import os
from typing import Any

import pytest

from larder.budgets import ByteBudget
from larder.config.urls import Access
from larder.copy.allowance import CopyLimits
from larder.copy.engine import copy_batch
from larder.progress import NullProgress
from larder.store.base import ObjectInfo
from larder.store.local.store import LocalStore
from larder.store.s3 import S3Store
from larder.store.s3 import bucket as s3_bucket
from tests.support.servers import assemble_wrongly

_PART_BYTES = 5 << 20


@pytest.fixture
def target(rclone_server, monkeypatch) -> S3Store:
    """Return a store at a server of which nothing is known yet."""
    rclone_server.create_bucket("unproved")
    access = Access(endpoint=rclone_server.endpoint, region=rclone_server.region)
    target = S3Store("unproved", "p", access)
    for fact in ("repeats_checksum", "whole_md5"):
        monkeypatch.setattr(target._bucket.account, fact, None)
    return target


@pytest.fixture
def sent(monkeypatch) -> list[tuple[str, bool]]:
    """Return a list of the parts to come: their keys, and whether they have an MD5.

    Each part of ``damaged`` and ``damaged-2`` is zeros when it arrives. The etag of ``damaged-2``
    is no MD5, as in another bucket of the server.
    """
    parts, send, head = [], s3_bucket.S3Bucket.send, s3_bucket.S3Bucket.head

    def noted(bucket: Any, method: str, call: Any, **options: Any) -> Any:
        if "partNumber" in (options.get("query") or {}):
            parts.append((call.key, options["md5"] is not None))
            if call.key.startswith("damaged"):
                options["body"] = [bytes(len(piece)) for piece in options["body"]]
        return send(bucket, method, call, **options)

    def described(bucket: Any, call: Any) -> ObjectInfo:
        info = head(bucket, call)
        return info._replace(etag=f"{info.etag}-2") if call.key == "damaged-2" else info

    monkeypatch.setattr(s3_bucket.S3Bucket, "send", noted)
    monkeypatch.setattr(s3_bucket.S3Bucket, "head", described)
    return parts


@pytest.mark.parametrize("verify", ["digest", "size"])
@pytest.mark.parametrize("second", ["right", "exchanged", "damaged", "damaged-2"])
def test_parts_of_later_objects_have_no_md5_and_the_objects_are_proved(
    second, verify, target, sent, tmp_path, monkeypatch
):
    """A damaged copy was recorded with ``verify: size``; the MD5 of a part had shown it."""
    for name in ("first", second):
        (tmp_path / name).write_bytes(os.urandom(_PART_BYTES + 7))
    source = LocalStore(tmp_path)
    objects = {info.key: info for page in source.list() for info in page}
    failures, copied = [], {}
    for name in ("first", second):
        if name == "exchanged":
            assemble_wrongly(monkeypatch)
        failures += copy_batch(
            source,
            target,
            [objects[name]],
            prefix="",
            limits=CopyLimits(1, ByteBudget(1 << 26), verify, part_bytes=_PART_BYTES),
            progress=NullProgress(),
            copied=lambda copy: copied.update({copy.key: copy.check}),
        )
    assert sent == [("first", True)] * 2 + [(second, False)] * 2
    right = second == "right"
    assert copied == ({"first": "md5", "right": "md5"} if right else {"first": "md5"})
    assert [failure.code for failure in failures] == ([] if right else ["object.mismatch"])


def test_parts_of_a_continued_upload_have_an_md5(target, sent):
    """The caller has not read the parts before them, so it has no MD5 of the content."""
    target._bucket.account.whole_md5 = True
    begun = target.begin_upload("k")
    for upload in (begun, target.begin_upload("k", resume=begun.id)):
        upload.send(1, [b"part"], 0)
    begun.abort()
    assert sent == [("k", False), ("k", True)]
