"""The process's GCS clients: shared, and none without gcsfs; their credentials."""

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.auth.credentials import AnonymousCredentials, Credentials

from larder.errors import RetryableError, StoreError
from larder.store import Access, Store, open_store
from larder.store.blocks import register
from larder.store.gcs.bucket import SCOPE, GcsSettings, find_settings, shared_account
from tests.support.errors import larder_error
from tests.support.fake_gcs import FakeGcs, gcs_refusal


def opened(gcs: FakeGcs, **access: Any) -> Store:
    return open_store("gs://bucket/p", access=Access(endpoint=gcs.endpoint, **access), retry=None)


def test_stores_of_one_account_share_a_client(gcs, monkeypatch):
    def client(**access: Any) -> object:
        return shared_account(Access(endpoint=gcs.endpoint, **access), "gs://bucket/")

    before = client()
    assert client() is before
    assert client(project="p") is not before
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "other")
    assert client() is not before


def test_without_gcsfs_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs.credentials", None)
    with larder_error("config.missing_package"):
        open_store("gs://bucket")


def test_a_client_certificate_is_refused(gcs, monkeypatch):
    # Google's libraries would need a certificate of the machine's vendor.
    monkeypatch.setenv("GOOGLE_API_USE_CLIENT_CERTIFICATE", "true")
    monkeypatch.setattr(
        "larder.store.gcs.bucket.find_settings",
        lambda *_: GcsSettings("https://127.0.0.1:9", AnonymousCredentials(), ""),
    )
    store = open_store("gs://bucket", access=Access(project="certificate"), retry=None)
    with larder_error("config.invalid_value"):
        store.get("k")


class Refused:
    """Credentials that cannot be renewed."""

    valid, expiry = False, None

    def __init__(self, *, retryable: bool) -> None:
        self.retryable = retryable

    def refresh(self, request: object) -> None:
        from google.auth.exceptions import RefreshError

        raise RefreshError("secret text", retryable=self.retryable)


@pytest.mark.parametrize(("retryable", "kind"), [(True, RetryableError), (False, StoreError)])
def test_credentials_that_cannot_be_renewed(gcs, retryable, kind):
    store = opened(gcs, project=f"renewed-{retryable}")
    client = shared_account(
        Access(endpoint=gcs.endpoint, project=f"renewed-{retryable}"), "gs://bucket/"
    )
    client.tokens.credentials = Refused(retryable=retryable)
    with pytest.raises(kind) as caught:
        store.get("k")
    assert "secret" not in str(caught.value)


class Expiring(Credentials):
    """Credentials whose token is valid for less than the five minutes that gcsfs wants."""

    given = 0

    def refresh(self, request: object) -> None:
        Expiring.given += 1
        self.token = f"token {self.given}"
        self.expiry = datetime.now(UTC).replace(tzinfo=None) + timedelta(minutes=4)


def test_a_token_is_asked_for_once_for_each_time_that_it_expires(gcs, monkeypatch):
    """It was for every request, if valid for less than five minutes; and never once refused."""
    monkeypatch.setattr(
        "larder.store.gcs.bucket.find_settings",
        lambda *_: GcsSettings(gcs.endpoint, Expiring(), ""),
    )
    store = opened(gcs, project="expiring")
    store.put("k", b"1")
    with store.writer("large") as writer:
        writer.write(bytes(17 << 20))
        writer.commit()
    store.delete("large")
    assert {ask.headers.get("authorization") for ask in gcs.asked} == {"Bearer token 1"}
    assert Expiring.given == 1
    gcs.fault = lambda ask: (
        gcs_refusal(401) if ask.headers["authorization"] == "Bearer token 1" else None
    )
    assert store.head("k").size_bytes == 1
    assert Expiring.given == 2


def test_the_credentials_of_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "user.json"
    user = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}
    path.write_text(json.dumps(user | {"quota_project_id": "from-file"}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    found = find_settings("gs://bucket/", Access(project="team"))
    assert (found.endpoint, found.project) == ("", "team")
    assert found.credentials.quota_project_id == "team"
    for access in (Access(anonymous=True), Access(endpoint="http://127.0.0.1:1")):
        assert find_settings("gs://bucket/", access).credentials is None


@pytest.fixture(scope="module")
def key() -> dict[str, str]:
    """The key of a service account that does not exist."""
    pem = rsa.generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": "of-key",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "robot@of-key.iam.gserviceaccount.com",
        "client_id": "2",
        "token_uri": "https://127.0.0.1:9/token",
    }


def test_the_key_in_a_block(key, tmp_path):
    path = tmp_path / "key.json"
    path.write_text(json.dumps(key))
    contents: dict[str, dict[str, Any]] = {
        "info": {"service_account_info": key, "project": None, "service_account_file": None},
        "text": {"service_account_info": json.dumps(key), "project": "of-block"},
        "file": {"service_account_file": str(path), "service_account_info": None},
        "whole": key,
    }
    register("gcp-credentials", contents.__getitem__)
    for name in contents:
        found = find_settings("gs://bucket/", Access(block=f"gcp-credentials/{name}"))
        assert found.credentials.service_account_email == key["client_email"]
        assert found.credentials.scopes == [SCOPE]
        assert found.project == ("of-block" if name == "text" else "of-key")


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"service_account_info": "secret"},
        {"service_account_info": ["secret"]},
        {"service_account_info": {"private_key": "secret", "client_email": "a", "token_uri": "b"}},
        {"service_account_file": "/none/secret.json"},
        {"service_account_file": 3},
    ],
)
def test_a_block_without_a_key(content):
    register("gcp-credentials", {"x": content}.__getitem__)
    store = open_store("gs://bucket", access=Access(block="gcp-credentials/x"), retry=None)
    with larder_error("config.block") as caught:
        store.get("k")
    assert "secret" not in f"{caught.value} {caught.value.__cause__}"
