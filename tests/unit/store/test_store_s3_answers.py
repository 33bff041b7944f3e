"""How a store handles answers that real servers rarely give."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from scripted_s3 import Say, Script, scripted_s3

from larder.errors import FatalError, LarderError, RetryableError
from larder.store import Store, open_store
from larder.store.base import UNKNOWN_US, ObjectInfo
from larder.store.etags import etag_of_parts
from larder.store.interrupt import Interrupt
from larder.store.s3.bucket import crc32c_of
from tests.support import errors
from tests.support.processes import wait_until
from tests.support.stores import keys_of

NEVER = 3600.0
"""Seconds: what waits for such an answer does not end before its time limit."""

OBJECT = {"ETag": '"abc"', "Last-Modified": "Sat, 21 Nov 2026 06:41:29 GMT"}
PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>{rest}
{contents}</ListBucketResult>"""
CONTENT = """<Contents><Key>{key}</Key><LastModified>2026-11-21T06:41:29.125Z</LastModified>
<ETag>&quot;e-1&quot;</ETag><Size>7</Size><StorageClass>STANDARD</StorageClass></Contents>"""


def page(*keys: str, token: str = "", encoded: bool = True) -> Say:
    rest = "<EncodingType>url</EncodingType>" if encoded else ""
    rest += f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>"
    if token:
        rest += f"<NextContinuationToken>{token}</NextContinuationToken>"
    contents = "".join(CONTENT.format(key=key) for key in keys)
    return Say(body=PAGE.format(rest=rest, contents=contents))


def opened(script: Script) -> Store:
    return open_store("s3://bucket/p", endpoint=script.endpoint, retry=None)


def error_of(call: Callable[[], object]) -> LarderError:
    error = errors.error_of(call)
    for leak in ("<", "Signature=", "larder-test-secret", "LARDERTESTKEY", "AKIA", "Debug"):
        assert leak not in str(error)
    return error


BEGUN = Say(
    body="<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
)

CALLS: dict[str, Callable[[Store], object]] = {
    "list": lambda store: list(store.list()),
    "get": lambda store: store.get("k"),
    "get odd": lambda store: store.get("a//b"),
    "put": lambda store: store.put("k", b"1"),
    "put odd": lambda store: store.put("a//b", b"1"),
    "delete": lambda store: store.delete("k"),
    "writer": lambda store: store.writer("k").commit(),
}
INSIDE = (
    "<AWSAccessKeyId>LARDERTESTKEY1</AWSAccessKeyId><StringToSign>AWS4</StringToSign>"
    "<Message>User AKIAABCDEFGHIJKLMNOP may not</Message><Region>eu-west-9</Region>"
)
BUSY, DENIED, MOVED = "store.unavailable", "store.denied", "store.region"


def said(status: int, word: str, **headers: str) -> Say:
    return Say.error(status, word, INSIDE, **headers)


@pytest.mark.parametrize(
    ("say", "codes"),
    [
        (said(503, "SlowDown"), {"": BUSY}),
        (said(500, "InternalError"), {"": BUSY}),
        (said(429, "TooManyRequests"), {"": BUSY}),
        (said(400, "RequestTimeout"), {"": BUSY}),
        (said(409, "ConditionalRequestConflict"), {"": BUSY}),
        (Say(502, "<html>Bad gateway</html>"), {"": BUSY}),
        (said(403, "SignatureDoesNotMatch"), {"": DENIED}),
        (said(403, "InvalidAccessKeyId"), {"": DENIED}),
        (said(403, "AccessDenied"), {"": "object.unreadable", "list": DENIED}),
        (said(301, "PermanentRedirect", x_amz_bucket_region="eu-west-9"), {"": MOVED}),
        (said(400, "AuthorizationHeaderMalformed"), {"": MOVED}),
        (said(507, "InsufficientStorage"), {"": "store.full"}),
        (said(400, "InvalidRequest"), {"": "store.refused", "get": "object.unreadable"}),
        (said(501, "NotImplemented"), {"": "store.refused", "get": "object.unreadable"}),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Say) else "",
)
def test_every_call_makes_the_same_of_an_answer(say, codes):
    """The code of a kind of call that has none of its own is that of all the others."""
    for name, call in CALLS.items():
        if name == "writer" and codes[""] == BUSY:
            continue  # the client itself repeats
        with scripted_s3(say) as script:
            error = error_of(lambda call=call, script=script: call(opened(script)))  # type: ignore[misc]
            assert (name, error.code) == (name, codes.get(name.split()[0], codes[""]))
            assert isinstance(error, RetryableError) == (error.code == BUSY)
            assert len(script.asked) == 1 or error.code != BUSY
        assert error.code != MOVED or "the bucket is in eu-west-9" in error.message


@pytest.mark.parametrize("minutes", [30.5, -30.5])
@pytest.mark.parametrize("told", ["ServerTime", "Date", ""])
def test_a_clock_that_differs_is_measured(minutes, told):
    """Whoever was refused for it was advised to check the keys."""
    then = datetime.now(UTC) - timedelta(minutes=minutes)
    date = format_datetime(then, usegmt=True) if told == "Date" else "garbage"
    inside = f"<ServerTime>{then:%Y-%m-%dT%H:%M:%SZ}</ServerTime>" if told == "ServerTime" else ""
    say = Say.error(403, "RequestTimeTooSkewed", inside, Date=date)
    for call in (CALLS["get"], CALLS["list"], lambda store: store.head("k")):
        with scripted_s3(say) as script:
            error = error_of(lambda call=call, script=script: call(opened(script)))  # type: ignore[misc]
        assert error.code == DENIED
        side = "ahead of" if minutes > 0 else "behind"
        assert (" 30 min " in error.message and side in error.message) == bool(told)
        assert "clock" in error.hint


@pytest.mark.parametrize("named_by", ["environment", "profile"])
def test_a_server_that_refuses_headers_with_checksums(named_by, monkeypatch, tmp_path):
    """It could not be used at all; of what is sent, it compares the MD5 then."""
    upload, head = (lambda store: store.begin_upload("k")), (lambda store: store.head("k"))
    for call in (CALLS["put"], upload, head):
        with scripted_s3(Say(headers=OBJECT), refuses_checksums=True) as script:
            error = error_of(lambda call=call, script=script: call(opened(script)))  # type: ignore[misc]
            assert "AWS_REQUEST_CHECKSUM_CALCULATION=when_required" in error.hint
    if named_by == "environment":
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    else:
        config = tmp_path / "config"
        config.write_text("[default]\nrequest_checksum_calculation = when_required\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    part = Say(headers={**OBJECT, "ETag": f'"{hashlib.md5(b"1").hexdigest()}"'})
    with scripted_s3(BEGUN, part, refuses_checksums=True) as script:
        store = opened(script)
        upload = store.begin_upload("k")
        assert upload is not None
        arrived = upload.send(1, [b"1"], crc32c_of([b"1"]))
        assert arrived.proved
        upload.commit([arrived])
        store.put("k", b"1")


def test_an_archived_object():
    with scripted_s3(Say.error(403, "InvalidObjectState")) as script:
        error = error_of(lambda: opened(script).get("k"))
    assert error.code == "object.unreadable"
    assert "archive" in error.hint


@pytest.mark.parametrize(
    ("said", "pages"),
    [
        ([page("p/a+b%2B%25", encoded=False)], [["a+b%2B%25"]]),
        ([page("p/a", token="1"), page(token="2"), page("p/b")], [["a"], ["b"]]),
        ([page("p/", "p/a")], [["a"]]),
        ([page("p/")], []),
    ],
    ids=["keys that are not encoded", "a page without keys", "the folder itself", "it alone"],
)
def test_pages_are_those_with_keys(said, pages):
    with scripted_s3(*said) as script:
        assert [[info.key for info in each] for each in opened(script).list()] == pages


@pytest.mark.parametrize(("date", "modified_us"), [(r"\g<0>", 1795243289125000), ("", UNKNOWN_US)])
def test_listing_reads_every_field(date, modified_us):
    body = page("p/a+b%2B%25%2F%C3%BC").body.replace("STANDARD", "GLACIER_IR")
    with scripted_s3(Say(body=re.sub("<LastM.*fied>", date, body))) as script:
        ((info,),) = opened(script).list()
    assert info == ObjectInfo("a b+%/ü", 7, "e-1", modified_us, "GLACIER_IR")


def test_listing_asks_for_the_next_page_with_its_token():
    with scripted_s3(page("p/a", token="t+/="), page("p/b")) as script:
        assert keys_of(opened(script)) == ["a", "b"]
        assert "continuation-token=t%2B%2F%3D" in script.asked[1]
        assert all("prefix=p%2F&" in f"{asked}&" for asked in script.asked)


@pytest.mark.parametrize(
    "broken",
    [
        Say(body="<html><body>Welcome</body></html>"),
        Say(body="not XML"),
        Say(body=""),
        Say(body=PAGE.format(rest="<IsTruncated>true</IsTruncated>", contents="")),
        Say(body=PAGE.format(rest="", contents="")),
        page("p/b", "p/a"),
        page("p/a", "p/a"),
        Say.error(500, "InternalError"),
        Say(body=page("p/b").body, cut=150),
    ],
)
def test_a_listing_is_complete_or_raises(broken):
    with scripted_s3(page("p/0", token="t"), broken) as script:
        pages = opened(script).list()
        assert len(next(pages)) == 1
        error = error_of(lambda: next(pages))
    assert error.code in ("store.refused", "store.unavailable")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Size", str(10**30)),
        ("Size", "-1"),
        ("Size", "many"),
        ("LastModified", "2026-11-21"),
    ],
)
def test_a_listing_that_describes_no_object(name, text):
    """It ended in a traceback, here or where the size was stored."""
    body = re.sub(f"<{name}>.*?<", f"<{name}>{text}<", page("p/k").body)
    with scripted_s3(Say(body=body)) as script:
        error = error_of(lambda: keys_of(opened(script)))
    assert (error.code, error.where) == ("store.refused", "s3://bucket/p/k")
    assert f"{name} {text}" in error.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Last-Modified", "yesterday"),
        ("Last-Modified", "Sat, 21 Nov 99999 06:41:29 GMT"),
        ("x-amz-checksum-crc32c", "=======a"),
        ("Content-Range", f"bytes 0-0/{10**30}"),
    ],
)
@pytest.mark.parametrize("call", ["get", "head"])
def test_headers_that_describe_no_object(name, text, call):
    with scripted_s3(Say(body="x", headers={**OBJECT, name: text})) as script:
        error = error_of(lambda: getattr(opened(script), call)("k"))
    assert (error.code, error.where) == ("store.refused", "s3://bucket/p/k")
    assert text[-20:] in error.message


def test_metadata_that_cannot_be_decoded_is_kept():
    text = "=?UTF-8?B?a?="
    with scripted_s3(Say(headers={**OBJECT, "x-amz-meta-a": text})) as script:
        assert opened(script).head("k").metadata == {"a": text}


# Streams: the client itself repeats


def test_a_streams_part_is_sent_again():
    md5 = "d41d8cd98f00b204e9800998ecf8427e"
    etag = etag_of_parts([md5, md5])
    done = Say(
        body="<CompleteMultipartUploadResult><ETag>&quot;m-2&quot;</ETag></CompleteMultipartUploadResult>"
    )
    part = Say(headers={"ETag": f'"{md5}"'})
    there = Say(headers={**OBJECT, "ETag": f'"{etag}"'})
    with scripted_s3(BEGUN, Say.error(503, "SlowDown"), part, part, done, there) as script:
        with opened(script).writer("k") as writer:
            writer.write(bytes((16 << 20) + 1))
            assert writer.commit().etag == etag
        methods = [asked.split()[0] for asked in script.asked]
        assert methods == ["POST", "PUT", "PUT", "PUT", "POST", "HEAD"]


@pytest.mark.parametrize("ours", [True, False])
def test_a_completion_with_a_lost_answer(ours):
    md5 = hashlib.md5(b"part")
    etag = f"{hashlib.md5(md5.digest() * 2 if ours else b'other').hexdigest()}-2"
    part = Say(headers={"ETag": f'"{md5.hexdigest()}"'})
    gone = Say.error(404, "NoSuchUpload")
    there = Say(headers={**OBJECT, "ETag": f'"{etag}"'})
    with (
        scripted_s3(BEGUN, part, part, gone, there) as script,
        opened(script).writer("k") as writer,
    ):
        writer.write(bytes((16 << 20) + 1))
        if ours:
            assert writer.commit().etag == etag
        else:
            assert error_of(writer.commit).code == "object.missing"


def test_a_part_that_fails_for_good_aborts():
    with scripted_s3(BEGUN, Say.error(403, "AccessDenied")) as script:
        with opened(script).writer("k") as writer:
            writer.write(bytes((16 << 20) + 1))
            assert error_of(writer.commit).code == "object.unreadable"
        assert script.asked[-1].startswith("DELETE /bucket/p/k?uploadId=u")
        assert sum(asked.startswith("POST") for asked in script.asked) == 1, "only begun"


@pytest.mark.parametrize("content_range", ["", "bytes 0-99/1000"])
def test_another_range_than_the_one_requested(content_range):
    """Its bytes were taken for those of the range."""
    headers = {**OBJECT, "Content-Range": content_range} if content_range else OBJECT
    with scripted_s3(Say(206, "x" * 100, headers)) as script:
        error = error_of(lambda: opened(script).get("k", offset=500, length=100))
    assert error.code == "store.refused"
    assert "range that was requested" in str(error)


@pytest.mark.timeout(60)
def test_a_stop_reaches_the_parts_of_a_stream():
    """A stop waited until all repetitions of a part had failed."""
    with scripted_s3(BEGUN, Say.error(503, "SlowDown")) as script:
        interrupt, store = Interrupt(), opened(script)
        with interrupt.active(), store.writer("k") as writer:
            writer.write(bytes(20 << 20))
            wait_until(lambda: len(script.asked) > 2)  # a part is repeated
            interrupt.stop()
            with pytest.raises(FatalError):
                writer.commit()


@pytest.mark.timeout(60)
def test_a_stream_that_fails_does_not_wait_for_its_parts():
    """Its upload was aborted only when all parts on their way had ended."""
    with scripted_s3(BEGUN, Say(200, seconds=NEVER), Say(204)) as script:
        with opened(script).writer("k") as writer:
            writer.write(bytes((16 << 20) + 1))
            wait_until(lambda: len(script.asked) == 2)
        assert script.asked[-1] == "DELETE /bucket/p/k?uploadId=u"
