"""Answers and documents that are longer than any right one are not read to their end."""

import pytest
from scripted_s3 import Say, scripted_s3

from larder.bounds import DOCUMENT_BYTES, JSON_VALUES, XML_BYTES, XML_TAGS, parse_bounded
from larder.errors import RetryableError
from larder.manifest.sealed import unseal
from larder.store import RetryPolicy, open_store
from larder.store.own_files import read_document, read_optional
from larder.store.s3.answers import element
from larder.store.s3.store import read_page
from tests.support.errors import larder_error
from tests.support.http_server import served

ONCE = RetryPolicy(attempts=1, first_delay_seconds=0)
PAGE = "<ListBucketResult><IsTruncated>false</IsTruncated>{}</ListBucketResult>"
ENTRY = (
    "<Contents><Key>{key:04d}{rest}</Key><LastModified>2026-11-21T06:41:29.125Z</LastModified>"
    "<ETag>&quot;{etag}&quot;</ETag><Size>1</Size><Owner><ID>{owner}</ID></Owner></Contents>"
)


def test_an_endless_answer_to_an_error_is_not_read_to_its_end():
    sent = []

    def serve(one):
        one.recv(65536)
        one.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 1099511627776\r\n\r\n<Code>Broken</Code>")
        while len(sent) < 64:
            one.sendall(bytes(1 << 20))
            sent.append(1)

    with served(serve) as port:
        store = open_store("s3://bucket", endpoint=f"http://127.0.0.1:{port}", retry=ONCE)
        with pytest.raises(RetryableError, match="Broken"):
            store.get("k")
    assert len(sent) < 64  # some are in the buffers of the system


def test_a_page_of_the_longest_keys_is_read():
    rest, owner = "&quot;" * 1020, "o" * 900
    keys = [ENTRY.format(key=n, rest=rest, etag="e", owner=owner) for n in range(1_000)]
    body = PAGE.format("".join(keys)).encode()
    assert 7_000_000 < len(body) < XML_BYTES
    infos, _ = read_page(body, "s3://bucket/")
    assert {len(info.key) for info in infos} == {1024}


@pytest.mark.parametrize(
    "body",
    [
        PAGE.format("<x/>" * XML_TAGS).encode(),
        PAGE.format("<x>" * XML_TAGS).encode(),
        PAGE.format("<x>" * XML_TAGS).encode("utf-16"),
        b'<!DOCTYPE a [<!ENTITY b "c">]>' + PAGE.format("").encode(),
        ('<?xml version="1.0" encoding="utf-16"?>' + PAGE.format("")).encode("utf-16"),
    ],
    ids=["tags", "nested", "tags-in-utf-16", "entities", "utf-16"],
)
def test_a_page_that_is_none_is_not_parsed(body):
    with larder_error("store.refused", "s3://bucket/"):
        read_page(body, "s3://bucket/")


def test_a_page_that_is_too_long_is_refused():
    with scripted_s3(Say(body=PAGE.format(" " * XML_BYTES))) as script:
        store = open_store("s3://bucket", endpoint=script.endpoint, retry=ONCE)
        with larder_error("store.refused", store.url):
            list(store.list())


@pytest.mark.parametrize("body", ["<Code>" * 200_000, "<Code>a</Code>" * 100_000])
def test_an_element_is_found_in_one_pass(body):
    assert element(body, "Code") in ("", "a")


def test_a_document_that_is_too_long_is_refused(tmp_path):
    store = open_store(str(tmp_path))
    (tmp_path / "a.json").write_bytes(b"{}")
    (tmp_path / "b.json").touch()
    with open(tmp_path / "b.json", "r+b") as file:
        file.truncate(DOCUMENT_BYTES + 1)  # which takes no space
    assert read_optional(store, "a.json") == b"{}"
    with larder_error("damage.manifest", f"{store.url}b.json"):
        read_document(store, "b.json")


def test_a_document_of_too_many_values_is_not_parsed():
    with larder_error("damage.manifest", "d.json") as caught:
        unseal(b"[" + b"[]," * JSON_VALUES + b"[]]", "d.json")
    assert f"{JSON_VALUES:,}" in caught.value.message


def test_commas_in_strings_are_no_values():
    """GCS lists the metadata of a thousand objects: 8 KiB each, which may be lists of numbers."""
    text = (
        '{"items":[' + ",".join(['{"metadata":{"boxes":"' + '\\"1,' * 4_100 + '"}}'] * 1_000) + "]}"
    )
    items = parse_bounded(text.encode())["items"]
    assert sum(each["metadata"]["boxes"].count(",") for each in items) > JSON_VALUES
