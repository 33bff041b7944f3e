"""One set of clients for all stores of a process with the same server and credentials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from scripted_s3 import Say, Script, scripted_s3

from larder.store import Store, open_store
from larder.store.access import Access
from larder.store.s3_clients import S3Clients, shared_clients
from larder.testing.servers import S3Server

PAGE = (
    '<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated><Contents>'
    "<Key>k</Key><Size>1</Size><ETag>e</ETag><LastModified>2026-01-02T03:04:05Z</LastModified>"
    "</Contents></ListBucketResult>"
)
HEADERS = {"ETag": '"e"', "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}
OBJECT, LISTING = Say(200, "x", HEADERS), Say(200, PAGE)


def opened(script: Script, bucket: str = "bucket", profile: str | None = None) -> Store:
    return open_store(f"s3://{bucket}/", endpoint=script.endpoint, profile=profile, retry=None)


def clients(profile: str | None = None) -> S3Clients:
    return shared_clients(Access(endpoint="http://127.0.0.1:9", profile=profile))


def test_stores_opened_one_after_the_other_use_one_connection() -> None:
    with scripted_s3(OBJECT) as script:
        for _ in range(20):
            assert opened(script).get("k") == b"x"
        assert script.connections == 1
    with scripted_s3(LISTING) as script:
        for number in range(5):
            assert len(next(opened(script, f"bucket-{number}").list())) == 1
        assert script.connections == 1
    with scripted_s3(Say(200, "", HEADERS)) as script:
        for number in range(5):
            opened(script, f"bucket-{number}").put("a//b", b"1")
            with opened(script, f"bucket-{number}").writer("c") as writer:
                writer.commit()
        assert script.connections == 1


def test_another_environment_has_other_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_s3(LISTING) as script:
        first = opened(script)
        list(first.list())
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
        list(opened(script).list())
        list(first.list())
        monkeypatch.undo()
        list(opened(script).list())
        ours = os.environ["AWS_ACCESS_KEY_ID"]
        assert script.signed_by == [ours, "another", ours, ours]


def test_what_distinguishes_clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    ours = clients()
    assert clients() is ours
    assert clients("profile") is not ours
    monkeypatch.setenv("LARDER_SOMETHING", "else")
    assert clients() is ours
    for name in ("AWS_PROFILE", "AWS_CA_BUNDLE", "HTTPS_PROXY", "no_proxy", "HOME"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "other")
            assert clients() is not ours, name
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):  # the order does not count
        value = os.environ[name]
        monkeypatch.delenv(name)
        assert clients() is not ours, name
        monkeypatch.setenv(name, value)
    assert clients() is ours
    config.write_text("[profile a]\n")  # keys that somebody renews there
    assert clients() is not ours
    config.unlink()
    assert clients() is ours


def test_threads_that_open_at_once_share_clients() -> None:
    name = f"http://{uuid.uuid4()}"
    made: list[int] = []

    def run(_: int) -> int:
        found = shared_clients(Access(endpoint=name))
        return found.once("client", lambda: made.append(1) or len(made))  # type: ignore[func-returns-value]

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(run, range(64))) == {1}
    assert made == [1]


def test_the_clients_used_last_are_kept() -> None:
    ours = clients("first")
    for number in range(31):
        clients(f"other {number}")
    assert clients("first") is ours
    for number in range(32):
        clients(f"more {number}")
    assert clients("first") is not ours


def test_a_failed_creation_is_tried_again() -> None:
    found = S3Clients()
    with pytest.raises(ZeroDivisionError):
        found.once("client", lambda: 1 // 0)
    assert found.once("client", lambda: 1) == 1


def test_a_store_without_credentials_finds_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_credentials_that_expire_are_renewed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are asked for again, by the same clients, for every way to the server."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    given = tmp_path / "given"
    config = tmp_path / "config"
    config.write_text(f"[profile p]\nregion = us-east-1\ncredential_process = cat {given}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))

    def give(key: str) -> None:
        soon = datetime.now(UTC) + timedelta(minutes=5)  # botocore renews ten minutes before
        facts = {"AccessKeyId": key, "SecretAccessKey": "s", "Expiration": soon.isoformat()}
        given.write_text(json.dumps({"Version": 1, "SessionToken": "t", **facts}))

    with scripted_s3(OBJECT) as script:
        for key in ("first", "second"):
            give(key)
            store = opened(script, profile="p")
            store.head("a//b")
            script.answers = [LISTING]
            list(store.list())
            assert script.signed_by[-2:] == [key, key]
            script.answers = [OBJECT]
            for _ in range(100_000):  # obstore asks for them every 0.1 seconds at most
                store.get("k")
                if script.signed_by[-1] == key:
                    break
            assert script.signed_by[-1] == key


FORK = """
import os, sys, threading, warnings
from larder.store import open_store
if {without_boto3}:
    sys.modules["boto3"] = None
used = open_store({url!r}, retry=None)
if {used}:
    used.put("a", b"1")
    assert len(next(used.list())) == 1
    with used.writer("w") as writer:
        writer.commit()
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of forks beside threads
    child = os.fork()
if not child:
    for store in (used, open_store({url!r}, retry=None)):
        store.put("a", b"12")
        assert store.get("a") == b"12" and store.head("a").size_bytes == 2
        with store.open("a") as reader:
            assert b"".join(reader) == b"12"
        list(store.list())
        assert store.get("a", offset=1) == b"2"
        with store.writer("w") as writer:
            writer.commit()
        store.delete("w")
    print("child")
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
assert used.get("a") == b"12"
print("parent")
"""


def run(script: str, server: S3Server) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, **server.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("used", "without_boto3"), [(True, False), (False, False), (True, True)])
def test_a_child_that_was_forked_uses_s3_too(
    rclone_server: S3Server, used: bool, without_boto3: bool
) -> None:
    rclone_server.create_bucket("forks")
    url = f"s3://forks/{uuid.uuid4().hex}"
    done = run(FORK.format(url=url, used=used, without_boto3=without_boto3), rclone_server)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.split() == ["child", "parent"]
