"""Stores with weak etags, odd dates, odd orders and redirects; proxies; the payer of a copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from urllib.parse import urlsplit

import pytest
from scripted_s3 import Say, scripted_s3

from larder.budgets import ByteBudget
from larder.catalog.due import KeepPolicy, kept_versions
from larder.catalog.holdings import Holdings, Needed, Unit
from larder.config.urls import Access
from larder.copy.allowance import CopyLimits
from larder.copy.engine import copy_batch
from larder.errors import StoreError
from larder.progress import NullProgress
from larder.store import Store, open_store
from larder.store.base import UNKNOWN_US, BucketPrefix, ObjectInfo
from larder.store.buckets import list_pages, time_of
from larder.store.http import _proxy
from larder.store.s3.answers import copy_source
from larder.versions.leases import store_now_us
from larder.versions.publish import probe_conditions
from tests.support import http_server
from tests.support.errors import error_of, larder_error
from tests.support.fake_s3 import FakeS3
from tests.support.http_server import Ask, answering
from tests.support.stores import keys_of

WEAK, STRONG = 'W/"{}"', '"{}"'


@contextmanager
def bucket(sent: str, listed: str = "") -> Iterator[tuple[Store, list[Ask]]]:
    """A store whose server writes etags so, and what was asked of it."""
    server, asked = FakeS3(sent=sent, listed=listed or sent), list[Ask]()

    def answer(ask: Ask) -> http_server.Say:
        asked.append(ask)
        return server.answer(ask)

    with answering(answer) as endpoint:
        yield open_store("s3://bucket/p", endpoint=endpoint, retry=None), asked


@pytest.mark.parametrize(("listed", "sent"), [(WEAK, WEAK), (WEAK, STRONG), (STRONG, WEAK)])
def test_objects_with_weak_etags_are_read_until_they_change(listed, sent):
    with bucket(sent, listed) as (store, _):
        store.put("a", b"first")
        store.put("b", b"second")
        infos = [info for page in store.list() for info in page]
        if (listed, sent) != (STRONG, WEAK):  # whose server compares the condition strongly
            wanted = [(info.key, info.size_bytes, info.etag) for info in infos]
            assert list(store.get_each(wanted)) == [b"first", b"second"]
        etag = store.head("a").etag
        assert store.get("a", offset=1, length=3, if_match=etag) == b"irs"
        store.put("a", b"other")
        for call in (store.get, store.delete):
            with larder_error("object.changed"):
                call("a", if_match=etag)
        assert store.get("a") == b"other"
        store.delete("a", if_match=store.head("a").etag)
        assert keys_of(store) == ["b"]


@pytest.mark.parametrize("sent", [WEAK, STRONG])
def test_conditions_that_weak_etags_never_meet_are_not_relied_on(sent):
    """Tags could never be moved."""
    with bucket(sent) as (store, _):
        assert probe_conditions(store).if_match == (sent == STRONG)


@pytest.mark.parametrize("sent", [WEAK, STRONG])
def test_a_server_is_not_asked_to_copy_what_a_weak_etag_describes(sent):
    """It would copy whatever is there by then."""
    with bucket(sent) as (store, asked):
        infos = [store.put(f"from/{number}", b"%d" % number * 9) for number in range(3)]
        limits = CopyLimits(4, ByteBudget(1 << 26))
        how = {"prefix": "to/", "limits": limits, "progress": NullProgress(), "copied": print}
        assert not copy_batch(store, store, infos, **how)
        assert keys_of(store, "to/") == [f"to/{info.key}" for info in infos]
        copies = [ask for ask in asked if "x-amz-copy-source" in ask.headers]
        assert bool(copies) == (sent == STRONG)


# Dates

SECOND_US = 1_795_243_289_000_000


@pytest.mark.parametrize(
    ("text", "expected_us"),
    [
        ("2026-11-21T06:41:29Z", SECOND_US),
        ("2026-11-21T06:41:29", SECOND_US),
        ("2026-11-21T07:41:29+0100", SECOND_US),
        (" 2026-11-21 06:41:29.125 ", SECOND_US + 125_000),
        ("2026-11-21T07:41:29.125000000+01:00", SECOND_US + 125_000),
        ("Sat, 21 Nov 2026 06:41:29 GMT", SECOND_US),
        ("Sat, 21 Nov 2026 06:41:29", SECOND_US),
        ("Sat, 21 Nov 2026 06:41:29.125 GMT", SECOND_US),
        ("Saturday, 21-Nov-26 06:41:29 GMT", SECOND_US),
        ("Sat Nov 21 06:41:29 2026", SECOND_US),
        ("", UNKNOWN_US),
        (None, UNKNOWN_US),
        ("0001-01-01T00:00:00Z", UNKNOWN_US),
        ("Thu, 01 Jan 1970 00:00:00 GMT", UNKNOWN_US),
    ],
)
def test_times_of_several_forms(text, expected_us):
    assert time_of(text) == expected_us


def test_nothing_of_an_unknown_time_is_old():
    assert [ObjectInfo("k", 1, "", each).clock_us for each in (UNKNOWN_US, 7)] == [0, 7]
    with scripted_s3(Say(headers={"ETag": '"e"'})) as script, pytest.raises(StoreError):
        store_now_us(open_store("s3://bucket/p", endpoint=script.endpoint, retry=None))
    units = {"versions/a": Unit(document_us=UNKNOWN_US), "versions/b": Unit(document_us=5)}
    needed = Needed({}, frozenset(), False, {"a": (), "b": ()})
    reasons = kept_versions(Holdings(units), needed, KeepPolicy(keep=0), 10)
    assert (reasons["a"], reasons["b"]) == ("newest", "")


# Listings, redirects, proxies


@pytest.mark.parametrize(("bucket", "directory"), [("b", False), ("b--use1-az4--x-s3", True)])
@pytest.mark.parametrize("keys", [["b", "a"], ["a", "a"], ["a" * 1000, "a" * 999]])
def test_a_listing_out_of_order_is_said_as_it_was_seen(keys, bucket, directory):
    infos = [ObjectInfo(key, 1, "", 0) for key in keys]
    with larder_error("store.refused") as caught:
        list(list_pages(lambda token: (infos, ""), "", f"s3://{bucket}/"))
    assert repr(keys[1][:100]) in caught.value.message
    assert len(caught.value.message) < 400
    assert ("directory bucket" in caught.value.hint) == directory


@pytest.mark.parametrize(
    ("tokens", "most"),
    [
        ({"": "a", "a": "a"}, 2),
        ({"": "a", "a": "b", "b": "a"}, 10_000),
        (defaultdict(count(1).__next__), 10_000),
    ],
)
def test_tokens_that_lead_nowhere_are_refused(tokens, most):
    """One is repeated, or they alternate, or are ever new, and all pages are empty."""
    asked: list[str] = []

    def read(token: str) -> tuple[list[ObjectInfo], str]:
        asked.append(token)
        assert len(asked) <= most
        return [], str(tokens[token])

    with larder_error("store.refused"):
        list(list_pages(read, "", "s3://bucket/"))


def test_a_listing_may_have_any_number_of_pages():
    def read(token: str) -> tuple[list[ObjectInfo], str]:
        number = int(token or "1")
        return [ObjectInfo(f"{number:05}", 1, "", 0)], str(number + 1) if number < 10_001 else ""

    assert len(list(list_pages(read, "", "s3://bucket/"))) == 10_001


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("call", ["get", "head", "list"])
def test_a_redirect_of_what_is_not_s3_names_the_address(status, call):
    say = Say(status, "<html>moved</html>", {"Location": "https://login.example:8443/x?token=s"})
    with scripted_s3(say) as script:
        store = open_store("s3://bucket", endpoint=script.endpoint, retry=None)
        error = error_of(lambda: [*store.list()] if call == "list" else getattr(store, call)("k"))
    assert error.code == "store.refused"
    assert "https://login.example:8443" in error.message
    assert "token" not in str(error)
    assert "region" not in error.hint


@pytest.mark.parametrize(
    ("no_proxy", "host", "expected"),
    [
        ("10.0.0.0/8", "10.1.2.3:9000", ""),
        ("example.com, 10.0.0.0/8", "10.1.2.3", ""),
        ("10.0.0.0/8 192.168.0.7/24", "192.168.0.250", ""),
        ("10.1.2.3", "10.1.2.3:9000", ""),
        ("fd00::/8", "[fd00::1]:9000", ""),
        ("[fd00::1]", "[fd00::1]:9000", ""),
        ("10.0.0.0/8", "11.1.2.3", "http://proxy:1"),
        ("10.0.0.0/8", "10.example.com", "http://proxy:1"),
        ("fd00::/8", "10.1.2.3", "http://proxy:1"),
        ("", "10.1.2.3", "http://proxy:1"),
    ],
)
def test_networks_without_a_proxy(no_proxy, host, expected, monkeypatch):
    monkeypatch.setenv("http_proxy", "proxy:1")
    monkeypatch.setenv("no_proxy", no_proxy)
    assert _proxy(urlsplit(f"http://{host}")) == expected


# Who pays


@pytest.mark.parametrize("payer", [None, "", "team"])
def test_a_copy_on_the_server_says_who_pays_for_reading(payer, gcs):
    place = replace(BucketPrefix("s3", "", "src", "a/"), payer=payer)
    headers = copy_source(place, ObjectInfo("k", 1, "e", 0))
    assert headers.get("x-amz-request-payer") == (None if payer is None else "requester")
    gcs.add("k", b"content", bucket="src")
    access = Access(endpoint=gcs.endpoint, project="own")
    pays = access._replace(requester_pays=payer is not None, project=payer or None)
    source = open_store("gs://src", access=pays, retry=None)
    info = ObjectInfo("k", 7, "", 0, generation=gcs.objects["src", "k"]["generation"])
    open_store("gs://bucket", access=access, retry=None).copy_from(source, info, "k")
    assert [ask.query.get("userProject") for ask in gcs.asked] == [payer if payer != "" else "own"]
