"""Credentials, endpoint and region, and which packages they need."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from larder.errors import ConfigError
from larder.store import open_store
from larder.store.s3.multipart import part_size_bytes
from tests.support.errors import larder_error
from tests.support.servers import S3Server

BUCKET = "access"


@pytest.fixture
def url(rclone_server: S3Server) -> str:
    rclone_server.create_bucket(BUCKET)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)


@pytest.fixture
def profiles(
    rclone_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_keys: None
) -> None:
    """A configuration with a profile that leads to a server, and one without credentials."""
    keys = f"{rclone_server.access_key}\naws_secret_access_key = {rclone_server.secret_key}"
    (tmp_path / "config").write_text(
        f"[profile good]\naws_access_key_id = {keys}\nregion = eu-central-1\n"
        f"endpoint_url = {rclone_server.endpoint}\n"
        "[profile broken]\ncredential_process = /bin/false\n"
        "[profile aws]\naws_access_key_id = a\naws_secret_access_key = b\nregion = ap-south-1\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


@pytest.mark.parametrize("profile", ["good", None], ids=["argument", "environment"])
def test_a_profile_gives_keys_region_and_endpoint(profiles, url, monkeypatch, profile):
    if profile is None:
        monkeypatch.setenv("AWS_PROFILE", "good")
    store = open_store(url, profile=profile, retry=None)
    store.put("a", b"1")
    assert store.get("a") == b"1"
    assert [info.key for page in store.list() for info in page] == ["a"]


@pytest.mark.parametrize("profile", ["absent", "broken"])
def test_an_unusable_profile(profiles, url, profile):
    with larder_error("store.denied") as caught:
        open_store(url, profile=profile).get("a")
    assert "\n" not in str(caught.value)


def test_no_credentials_at_all(no_keys, url, monkeypatch):
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")  # a server on this machine needs no such word
    asked: list[object] = []
    metadata = "botocore.utils.InstanceMetadataFetcher.retrieve_iam_role_credentials"
    monkeypatch.setattr(metadata, asked.append)
    with larder_error("store.denied") as caught:
        open_store(url, endpoint="http://127.0.0.1:9", retry=None).get("a")
    assert "AWS_ACCESS_KEY_ID" in caught.value.hint
    assert asked == [], "nothing waits for an instance's metadata"


def test_parts_grow_so_that_ten_thousand_are_enough():
    first = 16 << 20
    sizes = [part_size_bytes(index) for index in range(10_000)]
    assert sizes[:1000] == [first] * 1000
    assert sizes == sorted(sizes)
    assert max(sizes) == 2 << 30
    assert sum(sizes) >= 5 << 40


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_an_invalid_region_is_refused(name, monkeypatch):
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv(name, "us west\n")
    for call in (lambda store: store.get("a"), lambda store: list(store.list())):
        with larder_error("config.invalid_value", f"environment variable {name}"):
            call(open_store("s3://bucket/x", endpoint="http://127.0.0.1:9", retry=None))
    with pytest.raises(ConfigError, match="not a valid region"):
        open_store("s3://bucket/x", region="us west")


def test_a_profile_with_a_wrong_server_or_region(tmp_path, monkeypatch, no_keys):
    keys = "aws_access_key_id = a\naws_secret_access_key = b\n"
    (tmp_path / "config").write_text(
        f"[profile secret]\n{keys}endpoint_url = http://user:hunter2@127.0.0.1:9\n"
        f"[profile none]\n{keys}endpoint_url = hunter2\n"
        f"[profile port]\n{keys}endpoint_url = http://hunter2:99999\n"
        f"[profile region]\n{keys}region = hunter 2\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for profile in ("secret", "none", "port", "region"):
        with pytest.raises(ConfigError) as caught:
            open_store("s3://bucket/x", profile=profile, retry=None).get("a")
        assert caught.value.code == (
            "config.secret" if profile == "secret" else "config.invalid_value"
        )
        assert profile in caught.value.where
        assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"]
)
@pytest.mark.parametrize("value", ["hunter2\r", "hunter2\n", "hunt\udcff"])
def test_a_credential_with_a_line_break_is_named(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    with larder_error("config.invalid_value", f"environment variable {name}") as caught:
        open_store("s3://bucket/x", endpoint="http://127.0.0.1:9", retry=None).get("a")
    assert "hunt" not in str(caught.value)


def region(url: str = "s3://bucket", **access: str) -> str:
    """The region that a store knows, which takes no request."""
    return open_store(url, retry=None, **access).region()


@pytest.fixture
def at_amazon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_is_that_of_the_environment(no_keys, at_amazon, monkeypatch, name):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    assert region() == "us-east-1", "which Larder asks for by default"
    monkeypatch.setenv(name, "eu-north-1")
    assert region() == "eu-north-1"
    assert region(region="us-west-2") == "us-west-2"
    assert region(endpoint="http://127.0.0.1:9") == "", "another server has no regions"


def test_the_region_is_that_of_the_profile(profiles, at_amazon):
    assert region(profile="good") == "", "its endpoint is another server"
    assert region(profile="aws") == "ap-south-1"
