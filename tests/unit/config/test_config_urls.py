import pytest

from larder.config.urls import (
    check_endpoint,
    check_url,
    directory,
    environment_endpoint,
    parse_url,
    shown,
)
from tests.support.errors import larder_error

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SIGNED = f"X-Amz-Credential={ACCESS_KEY}%2F20261121&X-Amz-Signature={SECRET}"


def test_valid_urls():
    for url in ("s3://bucket/what?is#this %20", "s3://bucket/a?b=c&page=2", "S3://bucket/x"):
        check_url(url)
    for url in ("s3://bucket/it@home/10:30", "memory://name/prefix", "file:///dir/a?token=1"):
        check_url(url)
    for url in ("/dir/a?b=c&sig=1", "C:/data", "~/data", "dir "):
        check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        f"s3://{ACCESS_KEY}:{SECRET}@bucket/x",
        f"s3://{ACCESS_KEY}:wJal/{SECRET}@bucket",
        f"https://user:{SECRET}@host/x",
        f" s3://user:{SECRET}@bucket",
        f"s3://bucket/x?{SIGNED}",
        f"bucket.s3.amazonaws.com/x?{SIGNED}",
        f"s3://bucket/x?versionId=1&AWSAccessKeyId=a&Signature={SECRET}",
        f"https://account.blob.core.windows.net/x?sv=2024&sig={SECRET}",
        f"s3://bucket/x?TOKEN={SECRET}",
        f"s3://bucket/x?a=1;pass%77ord={SECRET}",
        f"s3://bucket/x?x-goog-signature={SECRET}",
        f"s3://bucket/{ACCESS_KEY}/x",
        f"user:{SECRET}@host/x",
        f"//user:{SECRET}@host/x",
        f"user:{SECRET}@host:/x",
        f":{SECRET}@host",
        f" //user:{SECRET}@host/x",
    ],
)
def test_credentials_in_urls_are_refused(url):
    with larder_error("config.secret") as caught:
        check_url(url, where="source.url")
    assert SECRET not in str(caught.value)
    assert ACCESS_KEY not in str(caught.value)


def test_a_directory_may_be_named_like_a_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a:b@c", " a:b@c "):
        (tmp_path / name).mkdir()
    paths = ("a:b@c", " a:b@c ", "a:b@c/new", "./x:y@z", "~/a:b@c/d", "/a:b@c", "a:b/larder/d@x")
    for path in paths:
        check_url(path)
        directory(path, "--output")
    for check in (check_url, lambda path: directory(path, "--output")):
        with larder_error("config.secret") as caught:
            check("x:y@z/new")
        assert "./" in caught.value.hint


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", "config.path"),
        ("file://", "config.path"),
        ("s3://", "config.unsupported_url"),
        ("s3:/bucket/x", "config.unsupported_url"),
        ("s3://bucket//", "config.unsupported_url"),
        ("s3://ab/x", "config.unsupported_url"),
        (f"s3://{'b' * 64}", "config.unsupported_url"),
        ("file://host/x", "config.unsupported_url"),
        ("ftp://host/x", "config.unsupported_url"),
        (" s3://bucket", "config.invalid_value"),
        ("s3://bucket/a\n", "config.invalid_value"),
        ("/a\udcff", "config.invalid_value"),
    ],
)
def test_urls_that_are_not_supported(url, code):
    with larder_error(code):
        check_url(url)


def test_valid_endpoints():
    for endpoint in ("http://127.0.0.1:9000", "https://minio.example.com/", "http://my_server"):
        check_endpoint(endpoint)
    for endpoint in ("HTTPS://Host:65535/base", "http://[::1]:9000"):
        check_endpoint(endpoint)


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [
        ("localhost:7481", "config.invalid_value"),
        ("//localhost", "config.invalid_value"),
        ("http://", "config.invalid_value"),
        ("http://h:99999", "config.invalid_value"),
        ("http://h:0", "config.invalid_value"),
        ("http://h:", "config.invalid_value"),
        ("http://[::1", "config.invalid_value"),
        ("http://a b", "config.invalid_value"),
        ("http://a..b", "config.invalid_value"),
        (" http://host", "config.invalid_value"),
        ("http://host\n", "config.invalid_value"),
        ("http://host?a=b", "config.invalid_value"),
        ("http://\u0663", "config.invalid_value"),
        ("http://host:\u0663", "config.invalid_value"),
        ("ftp://host", "config.unsupported_url"),
        (f"http://user:{SECRET}@host:9000", "config.secret"),
        (f"user:{SECRET}@host:9000", "config.secret"),
        (f"http://host/?token={SECRET}", "config.secret"),
        (f"http://host/?{SIGNED}", "config.secret"),
    ],
)
def test_endpoints_that_are_refused(endpoint, code):
    with larder_error(code, "endpoint") as caught:
        check_endpoint(endpoint, where="endpoint")
    assert SECRET not in str(caught.value)


def test_what_messages_repeat():
    for text in ("encodd", "1 QB", "a b", "it's", "us-west-2"):
        assert shown(text) == repr(text)
    for text in (SECRET, ACCESS_KEY, "s3://a:b@c", "a\nb", "x y " * 20, "my-password", ""):
        assert shown(text) == ""


@pytest.mark.parametrize(
    ("url", "scheme", "rest", "is_directory"),
    [
        ("S3://bucket/a b/%20?x#y", "s3", "bucket/a b/%20?x#y", False),
        ("file:///dir/", "file", "/dir/", True),
        ("/dir/a://b", "", "/dir/a://b", True),
        ("C:/data", "", "C:/data", True),
        ("s3:/bucket", "", "s3:/bucket", True),
        ("line\nbreak", "", "line\nbreak", True),
        ("s3://b/line\nbreak", "s3", "b/line\nbreak", False),
    ],
)
def test_a_url_is_parsed(url, scheme, rest, is_directory):
    assert parse_url(url) == (scheme, rest)
    assert parse_url(url).is_directory == is_directory
    assert (parse_url("s3://b/p/q/").bucket, parse_url("s3://b/p/q/").prefix) == ("b", "p/q/")
    assert (parse_url("s3://b").bucket, parse_url("s3://b").prefix) == ("b", "")


@pytest.mark.parametrize(
    ("provider", "name"),
    [("s3", "AWS_ENDPOINT_URL"), ("s3", "AWS_ENDPOINT_URL_S3"), ("gs", "STORAGE_EMULATOR_HOST")],
)
def test_an_endpoint_of_the_environment_is_checked_and_named(provider, name):
    assert environment_endpoint(provider, {name: "http://h:1"}) == "http://h:1"
    with larder_error("config.invalid_value", f"environment variable {name}"):
        environment_endpoint(provider, {name: "http://h:x"})
