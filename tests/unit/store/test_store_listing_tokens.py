"""Listings whose tokens lead nowhere are refused."""

from __future__ import annotations

from itertools import count

import pytest

from larder.errors import StoreError
from larder.store.base import ObjectInfo
from larder.store.buckets import list_pages


def test_tokens_that_alternate_between_empty_pages_are_refused():
    following = {"": "a", "a": "b", "b": "a"}
    reads = count()

    def read(token: str) -> tuple[list[ObjectInfo], str]:
        assert next(reads) < 10
        return [], following[token]

    with pytest.raises(StoreError) as caught:
        list(list_pages(read, "", "s3://bucket/"))
    assert caught.value.code == "store.refused"


def test_empty_pages_with_ever_new_tokens_are_refused():
    reads = count(1)

    def read(token: str) -> tuple[list[ObjectInfo], str]:
        number = next(reads)
        assert number < 20_000
        return [], str(number)

    with pytest.raises(StoreError) as caught:
        list(list_pages(read, "", "s3://bucket/"))
    assert caught.value.code == "store.refused"
