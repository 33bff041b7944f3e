from contextlib import nullcontext
from pathlib import Path

import pytest

from larder.config.urls import check_overlap, resolve_url
from larder.errors import ConfigError
from tests.support.errors import larder_error


def test_paths_are_relative_to_the_base(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    base = Path("/srv/here")
    assert resolve_url("./data/../x", base) == "/srv/here/x"
    assert resolve_url("/abs/", base) == "/abs"
    assert resolve_url("~/data", base) == "/home/me/data"
    assert resolve_url("s3://bucket/a/../b", base) == "s3://bucket/a/../b"


@pytest.mark.parametrize(
    ("source", "storage", "endpoints", "overlap"),
    [
        ("s3://bkt/", "s3://bkt/larder/x/", (None, None), True),
        ("s3://bkt/data/larder/x", "s3://bkt/data", (None, None), True),
        ("s3://bkt//data", "S3://bkt/data/", (None, None), True),
        ("s3://bkt/a", "s3://bkt/a", ("http://h:1", "http://H:1/"), True),
        ("s3://bkt", "s3://bkt/a", ("http://localhost:9000", "http://127.0.0.1:9000"), True),
        ("s3://bkt/a", "s3://bkt", ("http://[::1]:9000/", "http://LocalHost.:9000"), True),
        ("s3://bkt", "s3://bkt/a", ("http://127.0.0.1", "http://127.0.0.2:80"), True),
        ("s3://bkt", "s3://bkt/a", ("https://h.example:443", "https://H.Example."), True),
        ("s3://bkt", "s3://bkt/a", ("http://[2001:db8::0:1]:1", "http://[2001:DB8::1]:1"), True),
        ("s3://bkt", "s3://bkt/a", ("https://s3.us-east-1.amazonaws.com", None), True),
        ("./data", "data/local", (None, None), True),
        ("file:///tmp/a/b", "/tmp/a", (None, None), True),
        ("/", "/tmp/a", (None, None), True),
        ("s3://bkt/data", "s3://bkt/database", (None, None), False),
        ("s3://bkt", "s3://other", (None, None), False),
        ("gs://bkt", "s3://bkt", (None, None), False),
        ("s3://bkt", "s3://bkt", ("http://h:1", "http://h:2"), False),
        ("s3://bkt", "s3://bkt", ("http://h:1", None), False),
        ("s3://bkt", "s3://bkt", ("http://h", "https://h"), False),
        ("s3://bkt", "s3://bkt", ("http://h/one", "http://h/two"), False),
        ("./data/source", "./data/local", (None, None), False),
        ("/tmp/a", "s3://tmp/a", (None, None), False),
    ],
)
def test_overlaps(source, storage, endpoints, overlap):
    given, other = endpoints
    with larder_error("config.overlap") if overlap else nullcontext():
        check_overlap(source, storage, source_endpoint=given, storage_endpoint=other)


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(ConfigError):
        check_overlap(str(tmp_path / "real"), f"{tmp_path}/link/inner")
