import pytest

from larder.errors import ObjectError
from larder.store.keys import check_key
from larder.store.s3 import S3Store
from tests.support.errors import larder_error


def test_a_key_that_is_too_long_is_named_once():
    store = S3Store("bucket", "team/data")
    key = "x" * 1_020
    for call in (store.head, store.delete, store.writer):
        with larder_error("object.bad_key", f"s3://bucket/team/data/{key}") as caught:
            call(key)
        assert key not in caught.value.message


def test_the_prefix_counts():
    assert check_key("x" * 1_024, "s3://bucket/") == b"x" * 1_024
    assert check_key("x" * 1_019, "s3://bucket/team/", prefix="team/") == b"x" * 1_019
    for key, prefix in (("x" * 1_025, ""), ("x" * 1_020, "team/"), ("\u00e9" * 510, "team/")):
        with pytest.raises(ObjectError):
            check_key(key, "s3://bucket/", prefix=prefix)
