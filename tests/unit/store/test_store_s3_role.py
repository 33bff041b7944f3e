"""Whose credentials sign a request: of a role, of a block, of nobody, and of two at once."""

import os
from datetime import UTC, datetime, timedelta

import pytest
from scripted_s3 import Say, scripted_s3

from larder.config.urls import Access
from larder.errors import RetryableError, StoreError
from larder.store import open_store
from larder.store.buckets import load, register
from tests.support.errors import larder_error

ROLE = "arn:aws:iam::123456789012:role/reader"
OBJECT = Say(200, "x", {"ETag": '"e"', "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"})
KEY, SECRET = "LARDERTESTKEY2", "larder-test-secret-2"


def assumed(key: str, seconds: float = 3600) -> Say:
    """STS's answer to AssumeRole."""
    until = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Say(
        200,
        '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
        f"<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
        f"<SessionToken>t</SessionToken><Expiration>{until}</Expiration></Credentials>"
        "<AssumedRoleUser><AssumedRoleId>A:larder</AssumedRoleId><Arn>a</Arn></AssumedRoleUser>"
        "</AssumeRoleResult></AssumeRoleResponse>",
        {"Content-Type": "text/xml"},
    )


def refused(status: int, code: str) -> Say:
    body = f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>no</Message>"
    return Say(status, f"{body}</Error></ErrorResponse>", {"Content-Type": "text/xml"})


def test_a_role_is_assumed_once_for_all_buckets_until_its_credentials_expire():
    expired = Say.error(400, "ExpiredToken")
    answers = [assumed("ROLE1"), OBJECT, expired, assumed("ROLE2"), OBJECT]
    with scripted_s3(*answers) as script:
        access = Access(endpoint=script.endpoint, role=ROLE)
        for bucket in ("bucket-1", "bucket-2", "bucket-3"):
            assert open_store(f"s3://{bucket}/", access=access).get("k") == b"x"
        base = os.environ["AWS_ACCESS_KEY_ID"]
        assert script.signed_by == [base, "ROLE1", "ROLE1", base, "ROLE2", "ROLE2"]
        assert script.asked[0] == "POST /"


def test_a_role_is_assumed_by_a_profile_or_a_block(tmp_path, monkeypatch):
    credentials = tmp_path / "credentials"
    credentials.write_text("[own]\naws_access_key_id = PROFILEKEY\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    register("secret", lambda name: {"access_key_id": "BLOCKKEY", "secret_access_key": name})
    found = {"aws_access_key_id": "AWSKEY", "aws_secret_access_key": "s", "region_name": "r"}
    register("aws-credentials", {"writer": found}.__getitem__)
    for given, key in (
        ({"profile": "own"}, "PROFILEKEY"),
        ({"block": "secret/x"}, "BLOCKKEY"),
        ({"block": "aws-credentials/writer"}, "AWSKEY"),
    ):
        with scripted_s3(assumed("ROLEKEY"), OBJECT) as script:
            access = Access(endpoint=script.endpoint, role=ROLE, **given)  # type: ignore[arg-type]
            open_store("s3://bucket/", access=access).get("k")
            assert script.signed_by == [key, "ROLEKEY"]


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (refused(403, "AccessDenied"), StoreError, "store.denied"),
        (refused(403, "InvalidClientTokenId"), StoreError, "store.denied"),
        (refused(400, "Throttling"), RetryableError, "store.unavailable"),
    ],
)
def test_a_role_that_cannot_be_assumed(answer, kind, code):
    with scripted_s3(answer) as script:
        access = Access(endpoint=script.endpoint, role=ROLE)
        store = open_store("s3://bucket/", access=access, retry=None)
        with pytest.raises(kind) as caught:
            store.get("k")
        assert caught.value.code == code
        assert f"no credentials of the role {ROLE}: " in caught.value.message


def test_sts_that_does_not_answer_is_tried_again():
    with scripted_s3(OBJECT) as script:
        endpoint = script.endpoint
    store = open_store("s3://bucket/", access=Access(endpoint=endpoint, role=ROLE), retry=None)
    with pytest.raises(RetryableError, match="does not answer"):
        store.get("k")


def test_an_anonymous_request_is_not_signed(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    with scripted_s3(OBJECT) as script:
        access = Access(endpoint=script.endpoint, anonymous=True)
        assert open_store("s3://bucket/", access=access).get("k") == b"x"
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
        assert open_store("s3://bucket/", access=access).get("k") == b"x"
        assert script.signed_by == ["", ""]


@pytest.mark.parametrize(
    "content", [{}, {"access_key_id": "a"}, {"access_key_id": 7, "secret_access_key": "s"}]
)
def test_a_block_without_keys(content):
    register("secret", lambda name: content)
    store = open_store("s3://bucket/", access=Access(block=f"secret/x{len(content)}"))
    with larder_error("config.block"):
        store.get("k")


def test_a_block_that_nothing_here_can_load():
    with larder_error("config.block"):
        load("unheard-of/x")
