"""Where credentials come from if boto3 is not installed."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from larder.errors import ConfigError, LarderError, RetryableError, StoreError
from larder.store import s3_chain
from larder.store.s3_chain import asks_metadata, find_chain
from larder.store.s3_errors import Call

URL = "s3://bucket/"
IMDS = "http://169.254.169.254"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No keys, no files: what the machine alone has."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "token").write_text("t")
    return tmp_path


def giver(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    """Who gives them, or the code of the error."""
    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(f"AWS_{name}", value)
        try:
            return find_chain(None, "", URL, local_server=False).giver
        except LarderError as error:
            return error.code


def test_where_they_come_from(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    token = str(home / "token")
    web = {"WEB_IDENTITY_TOKEN_FILE": token, "ROLE_ARN": "arn"}
    full = {"CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1/c"}
    authorized = {**full, "CONTAINER_AUTHORIZATION_TOKEN_FILE": token}
    relative = {"CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/c"}
    off = {"EC2_METADATA_DISABLED": "True"}
    metadata, agent = "the instance's metadata service", "the container's agent"
    missing = "config.missing_package"
    for variables, expected in (
        ({}, metadata),
        (off, "store.denied"),
        (relative, agent),
        ({**relative, **off}, agent),
        (authorized, agent),
        (full, missing),
        ({**full, "CONTAINER_AUTHORIZATION_TOKEN_FILE": "/none"}, "store.denied"),
        (web, "STS"),
        ({**web, **relative}, "STS"),
        ({**web, "WEB_IDENTITY_TOKEN_FILE": "/none"}, "store.denied"),
        ({**web, "ENDPOINT_URL_STS": "http://127.0.0.1:1"}, missing),
        ({**web, "PROFILE": "p"}, missing),
        ({"ACCESS_KEY_ID": "half of a pair"}, "store.denied"),
    ):
        assert giver(monkeypatch, **variables) == expected, variables


@pytest.mark.parametrize("name", ["config", "credentials"])
@pytest.mark.parametrize("section", ["default", "profile default"])
def test_a_default_profile_needs_botocore_unless_it_only_sets_the_region(
    monkeypatch: pytest.MonkeyPatch, home: Path, name: str, section: str
) -> None:
    file = home / name
    harmless = "region = eu-west-1\noutput = json\ns3 =\n  max_bandwidth = 1MB/s"
    file.write_text(f"[{section}]\n{harmless}\n[other]\nrole_arn = r\n")
    chain = find_chain(None, "", URL, local_server=False)
    assert (chain.region, chain.options) == ("eu-west-1", {"metadata_endpoint": IMDS})
    assert find_chain(None, "here", URL, local_server=False).region == "here"
    file.write_text(f"[{section}]\ncredential_process = x\n")
    assert giver(monkeypatch) == "config.missing_package"
    file.write_text("no section = is here")
    assert giver(monkeypatch) == "config.missing_package"


def test_where_sts_is(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(home / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn")
    for region, host in (
        ("", "sts.us-east-1.amazonaws.com"),
        ("eu-west-1", "sts.eu-west-1.amazonaws.com"),
        ("cn-north-1", "sts.cn-north-1.amazonaws.com.cn"),
    ):
        chain = find_chain(None, region, URL, local_server=True)
        assert chain.options == {"aws_endpoint_url_sts": f"https://{host}"}


def test_when_the_metadata_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asks_metadata(local_server=False)
    assert not asks_metadata(local_server=True)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    assert asks_metadata(local_server=True)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert not asks_metadata(local_server=False)


def test_metadata_that_never_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3_chain, "_ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)
        with pytest.raises(StoreError, match="metadata service does not answer") as caught:
            find_chain(None, "", URL, local_server=True).check(URL)
    assert caught.value.code == "store.denied"
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:99999")
    with pytest.raises(StoreError, match="does not answer"):
        find_chain(None, "", URL, local_server=True).check(URL)


def test_a_profile_that_is_named_in_the_call() -> None:
    with pytest.raises(ConfigError, match="the AWS profile 'team' needs boto3"):
        find_chain("team", "", URL, local_server=False)


def test_the_meaning_of_errors_of_obstore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    chain, call = find_chain(None, "", URL, local_server=True), Call(URL, "key")

    def code(text: str) -> str | None:
        refusal = chain.refusal(f"Generic S3 error: Error performing {text}", call)
        return refusal and refusal.code

    asked = "PUT http://127.0.0.1:1/latest/api/token in 1ms"
    status = "Server returned non-2xx status code:"
    assert code(f"{asked} - HTTP error: error sending request") == "store.denied"
    assert code(f"{asked} - {status} 404 Not Found: ") == "store.denied"
    assert code(f"{asked} - {status} 503 Busy: ") == "store.unavailable"
    assert isinstance(
        chain.refusal(f"Error performing {asked} - {status} 429 x: ", call), RetryableError
    )
    object_url = "GET http://127.0.0.1:2/bucket/latest/api/token in 1ms"
    assert code(f"{object_url} - {status} 404 Not Found: ") is None
