"""One set of clients for all stores of a process with the same server and credentials."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from scripted_s3 import Say, Script, scripted_s3

from larder.config.urls import Access
from larder.errors import RetryableError, StoreError
from larder.store import Store, open_store
from larder.store.blocks import load, register
from larder.store.buckets import RenewedKeys
from larder.store.calls import RefusedKeysError
from larder.store.s3.bucket import S3Account, shared_account
from tests.support.errors import larder_error

PAGE = (
    '<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated><Contents>'
    "<Key>k</Key><Size>1</Size><ETag>e</ETag><LastModified>2026-01-02T03:04:05Z</LastModified>"
    "</Contents></ListBucketResult>"
)
HEADERS = {"ETag": '"e"', "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}
OBJECT, LISTING = Say(200, "x", HEADERS), Say(200, PAGE)


def opened(script: Script, bucket: str = "bucket", profile: str | None = None) -> Store:
    return open_store(f"s3://{bucket}/", endpoint=script.endpoint, profile=profile, retry=None)


def account(place: str = "http://127.0.0.1:9") -> S3Account:
    return shared_account(Access(endpoint=place), "s3://bucket/")


def test_stores_opened_one_after_the_other_use_one_connection_and_keep_their_keys(monkeypatch):
    with scripted_s3(OBJECT) as script:
        for number in range(5):
            assert opened(script, f"bucket-{number}").get("k") == b"x"
            opened(script, f"bucket-{number}").put("a//b", b"1")
        assert len(script.ports) == 1
        store = opened(script)
        store.get("k")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
        store.get("k")
        assert "another" not in script.signed_by


def test_what_distinguishes_accounts(monkeypatch):
    ours = account()
    assert account() is ours
    assert account("http://127.0.0.1:10") is not ours
    monkeypatch.setenv("LARDER_SOMETHING", "else")
    assert account() is ours
    changed = (
        "AWS_ACCESS_KEY_ID",
        "AWS_REGION",
        "AWS_CA_BUNDLE",
        "HTTPS_PROXY",
        "no_proxy",
        "HOME",
    )
    for name in changed:
        with monkeypatch.context() as patch:
            patch.setenv(name, "other")
            assert account() is not ours, name


def test_a_store_without_credentials_finds_later_ones(monkeypatch):
    ours = os.environ["AWS_ACCESS_KEY_ID"]
    with scripted_s3(LISTING) as script:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        store = opened(script)
        for _ in range(2):
            with pytest.raises(Exception, match="no AWS credentials"):
                list(store.list())
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ours)
        assert len(next(store.list())) == 1
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(Exception, match="no AWS credentials"):
            list(opened(script).list())


def test_threads_whose_keys_are_refused_ask_for_others_together():
    given: list[tuple[str]] = []
    refusals = threading.Barrier(8, timeout=30)

    def ask(store_url: str, refused: bool) -> tuple[tuple[str], float]:
        given.append((f"key {len(given)}",))
        return given[-1], 60.0

    def call(keys: tuple[str]) -> tuple[str]:
        if keys == ("key 0",):
            refusals.wait()
            raise RefusedKeysError("store.denied", "expired")
        return keys

    shared = RenewedKeys(ask)
    with ThreadPoolExecutor(8) as threads:
        used = list(threads.map(lambda _: shared.use(call, "s3://b/"), range(8)))
    assert used == [("key 1",)] * 8
    assert len(given) == 2


ROLE = "arn:aws:iam::123456789012:role/reader"


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


EXPIRED = Say.error(400, "ExpiredToken")


@pytest.mark.parametrize(
    ("call", "refusals", "answer", "seconds"),
    [
        (lambda store: store.get("k"), 1, OBJECT, 300),
        (lambda store: store.put("k", b"1"), 1, OBJECT, 3600),  # refused before that is over
        (lambda store: list(store.list()), 1, LISTING, 300),
        (lambda store: store.head("k"), 2, OBJECT, 3600),  # the answer to a HEAD has no reason
    ],
    ids=["get", "put", "list", "head"],
)
def test_a_role_is_assumed_once_for_all_buckets_until_its_keys_expire(
    call, refusals, answer, seconds
):
    """It was for every request, if they were valid for less than ten minutes."""
    first, second = assumed("ROLE1", seconds), assumed("ROLE2", seconds)
    with scripted_s3(first, OBJECT, OBJECT, *[EXPIRED] * refusals, second, answer) as script:
        access = Access(endpoint=script.endpoint, role=ROLE)
        for bucket in ("bucket-1", "bucket-2"):
            assert open_store(f"s3://{bucket}/", access=access).get("k") == b"x"
        call(open_store("s3://bucket-3/", access=access))
        base = os.environ["AWS_ACCESS_KEY_ID"]
        signed_by, last = script.signed_by[: 4 + refusals], script.signed_by[4 + refusals :]
        assert signed_by == [base, *["ROLE1"] * (2 + refusals), base]
        assert set(last) == {"ROLE2"}
        assert script.asked[0] == "POST /"


def test_keys_that_expire_and_that_nothing_renews_are_named():
    with scripted_s3(EXPIRED) as script:
        with larder_error("store.denied") as caught:
            opened(script).get("k")
        assert "ExpiredToken), and there are no others" in caught.value.message


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
    access = Access(endpoint="http://127.0.0.1:9", role=ROLE)
    store = open_store("s3://bucket/", access=access, retry=None)
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
