"""Permissions: complete runs need no others, and a missing one is named in the first seconds."""

import copy
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, images, png, reach, write

import larder
from larder.config.urls import Access
from larder.copy.uploads import UploadRecords
from larder.errors import LarderError, NotFoundError, ObjectError, StoreError
from larder.store import Store, open_store
from larder.store.base import BucketPrefix, Features
from larder.store.delegate import DelegatingStore
from larder.store.permissions import permission, probe_source, probe_storage
from larder.store.retry import RetryPolicy
from tests.support.errors import larder_error
from tests.support.memory import MemoryStore
from tests.support.roles import ROLES
from tests.support.runs import between
from tests.support.servers import S3Server
from tests.support.stores import Fail, FaultyStore, Recorder

pytestmark = pytest.mark.push

POLICIES = Path(__file__).parents[2] / "deployments" / "policies"
HASTY = RetryPolicy(attempts=2, sleep=lambda seconds: None)
FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "shards": {"bytes": 8_000},
    "cache": {"records": "encoded"},
    "mirror": True,
}


def statements(role: str, bucket: str, prefix: str) -> list[dict[str, Any]]:
    text = (POLICIES / f"aws-{role}.json").read_text(encoding="utf-8")
    for name in ("SOURCE", "STORAGE"):
        text = text.replace(f"{name}-BUCKET", bucket).replace(f"{name}-PREFIX/", prefix)
    found: list[dict[str, Any]] = json.loads(text)["Statement"]
    for statement in found:
        statement["Principal"] = {"AWS": ["arn:aws:iam:::user/guest"]}
    return found


def allow(server: S3Server, bucket: str, policy: list[dict[str, Any]], without: str = "") -> None:
    """Let the guest do what a policy allows, but one action.

    That is denied, because whoever writes an object may read it by its access control list.
    """
    of_it = (each for each in policy if without in each["Action"])
    policy = [*policy, *({**each, "Effect": "Deny", "Action": [without]} for each in of_it)]
    policy = copy.deepcopy(policy)
    for number, statement in enumerate(policy):
        statement["Sid"] = f"S{number}"
    client = server.client()
    document = {"Version": "2012-10-17", "Statement": policy}
    client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(document))
    client.close()


@pytest.fixture
def guest(radosgw_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """radosgw, for a user with no permissions."""
    found = radosgw_server.as_guest
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    return found


@pytest.fixture
def lab(radosgw_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    for name, value in radosgw_server.environment.items():
        monkeypatch.setenv(name, value)
    names = [f"{side}-{uuid.uuid4().hex[:12]}" for side in ("source", "storage")]
    for name in names:
        radosgw_server.create_bucket(name)
    where = reach(radosgw_server)
    write(f"s3://{names[0]}/in", images(), **where)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    return Lab(
        {"url": f"s3://{names[0]}/in", **where},
        {"url": f"s3://{names[1]}/out", **where},
        tmp_path / "out",
        FIELDS,
    )


def buckets(lab: Lab) -> tuple[str, str]:
    settings = lab.settings()
    urls = (settings.dataset.source.url, settings.cluster.storage.url)
    first, second = (url.split("/")[2] for url in urls)
    return first, second


@pytest.mark.radosgw
def test_the_shipped_policies_are_enough_for_a_run(lab, radosgw_server, guest, tmp_path):
    source, storage = buckets(lab)
    allow(radosgw_server, source, statements("source-reader", source, "in/"))
    allow(radosgw_server, storage, statements("storage-writer", storage, "out/"))
    document = lab.prepare()
    assert (document["status"], document["shards"]["samples"]) == ("built", 12)
    assert lab.prepare()["status"] == "reused"
    allow(radosgw_server, storage, statements("trainer", storage, "out/larder/"))
    address, access = f"s3://{storage}/out/larder/d", reach(guest)
    data = larder.open(address, cache_dir=tmp_path / "cache", **access)
    with data.cache("train", verify=True) as cache:
        assert len(cache) == 12


@pytest.mark.radosgw
@pytest.mark.parametrize(
    ("side", "action"),
    [
        ("source", "s3:ListBucket"),
        ("source", "s3:GetObject"),
        ("storage", "s3:ListBucket"),
        ("storage", "s3:GetObject"),
        ("storage", "s3:PutObject"),
        ("storage", "s3:DeleteObject"),
    ],
)
def test_a_missing_permission_is_named_before_anything_is_copied(
    lab, radosgw_server, guest, side, action
):
    source, storage = buckets(lab)
    missing = {side: action}
    reader = statements("source-reader", source, "in/")
    allow(radosgw_server, source, reader, missing.get("source", ""))
    writer = statements("storage-writer", storage, "out/")
    allow(radosgw_server, storage, writer, missing.get("storage", ""))
    with between(retry=HASTY), pytest.raises(StoreError) as caught:
        lab.prepare()
    error = caught.value
    assert error.code == "store.denied"
    assert action in error.hint
    role = {"source": "source-reader", "storage": "storage-writer"}[side]
    assert f"deployments/policies/aws-{role}.json" in error.hint
    client = radosgw_server.client()
    found = client.list_objects_v2(Bucket=storage).get("Contents", [])
    client.close()
    probes = [each["Key"] for each in found if "/work/probe-" in each["Key"]]
    assert len(found) == len(probes) == (action == "s3:DeleteObject")


@pytest.mark.radosgw
@pytest.mark.parametrize("without", ["", "s3:ListBucketMultipartUploads"])
def test_the_shipped_policy_is_enough_for_large_objects(lab, radosgw_server, guest, without):
    _, storage = buckets(lab)
    allow(radosgw_server, storage, statements("storage-writer", storage, "out/"), without)
    where = reach(guest)
    store = open_store(f"s3://{storage}/out", retry=HASTY, **where)
    data = bytes(12 * 1024**2)
    with store.writer("large") as writer:
        writer.write(data)
        writer.commit()
    with store.writer("given up") as writer:
        writer.write(data)
    assert [info.key for page in store.list() for info in page] == ["large"]
    assert radosgw_server.uploads(storage, "out/") == []
    if without:
        with pytest.raises((StoreError, ObjectError)):
            store.abort_uploads(0.0)
    else:
        assert store.abort_uploads(0.0) == 0
    UploadRecords(store, "work/uploads/").abort_unrecorded(lambda: None)
    store.delete("large")
    with pytest.raises((StoreError, ObjectError)):
        open_store(f"s3://{storage}/elsewhere", retry=HASTY, **where).put("a", b"x")


@pytest.mark.radosgw
def test_a_plan_needs_no_permission_to_write(lab, radosgw_server, guest):
    source, storage = buckets(lab)
    allow(radosgw_server, source, statements("source-reader", source, "in/"))
    allow(radosgw_server, storage, statements("trainer", storage, "out/"))
    assert lab.plan()["shards"]["samples"] == 12


def test_complete_runs_call_no_other_methods(tmp_path):
    write("memory://roles-source", images())
    lab = Lab("memory://roles-source", "s3://memory-roles", tmp_path / "out", FIELDS)
    with between(recorder := Recorder()):
        lab.prepare()
        write("memory://roles-source", {"d/00.png": png(50)})
        lab.prepare()
        lab.prepare(shards={"bytes": 9_000})
    calls: dict[str, set[str]] = {"source": set(), "storage": set()}
    for store in recorder.stores:
        side = "source" if "source" in store.url else "storage"
        calls[side] |= {call.method for call in store.calls}
    assert calls["source"] <= set(ROLES["source-reader"])
    assert {"list", "put", "commit"} <= calls["storage"]
    assert calls["storage"] - {"write", "sync", "region"} <= set(ROLES["storage-writer"])


# Which requests are made, and when


def counted(run: Callable[[], Any]) -> list[tuple[str, str, str]]:
    with between(recorder := Recorder()):
        run()
    return [
        ("source" if "/source-" in store.url else "storage", call.method, call.key)
        for store in recorder.stores
        for call in store.calls
    ]


@pytest.mark.radosgw
def test_a_run_with_nothing_to_do_tries_nothing(lab):
    first = counted(lab.prepare)
    probes = [call for call in first if "work/probe-" in call[2]]
    assert [method for _, method, _ in probes] == ["put", "get", "list", "delete"]
    assert first.index(probes[0]) < next(
        place for place, (_, method, key) in enumerate(first) if key.startswith("segments/")
    )
    again = counted(lab.prepare)
    assert [call for call in again if call[0] == "source"] == [("source", "list", "")]
    assert not [call for call in again if "probe" in call[2]]
    assert {method for _, method, _ in again} <= {"list", "get", "open", "head"}
    planned = counted(lambda: lab.plan(shards={"bytes": 9_000}))
    assert not [call for call in planned if call[1] in ("put", "delete", "commit")]
    assert ("source", "get", "a/00.json") in planned


# The probes themselves


class InMemory(DelegatingStore):
    def __init__(self, inner: Store, provider: str) -> None:
        super().__init__(inner)
        self._provider = provider

    @property
    def features(self) -> Features:
        return replace(self.inner.features, place=BucketPrefix(self._provider, "", "bucket", ""))


REFUSED = Fail(ObjectError("object.unreadable", "the store answers 403 AccessDenied", where="x"))


def bucket(
    name: str, *refused: str, keys: Mapping[str, Fail] | None = None, provider: str = "s3"
) -> Store:
    """A bucket that refuses some methods, and to read some of three objects."""
    store = FaultyStore(MemoryStore(name, ""))
    for key in keys or ():
        store.put(key, b"x")
    for method in refused:
        store.add(method, REFUSED, times=None)
    for key, effect in (keys or {}).items():
        store.add("get", effect, key=key, times=None)
    return InMemory(store, provider)


@pytest.mark.parametrize(
    ("provider", "method", "needed"),
    [
        ("s3", "put", "grant s3:PutObject, as in deployments/policies/aws-storage-writer.json"),
        ("s3", "get", "grant s3:GetObject and s3:ListBucket"),
        ("s3", "list", "grant s3:ListBucket"),
        ("s3", "delete", "grant s3:DeleteObject"),
        ("gs", "put", "grant storage.objects.create and storage.objects.delete, as in"),
    ],
)
def test_the_storage_probe_names_what_is_refused(provider, method, needed):
    store = bucket(f"probe-{provider}-{method}", method, provider=provider)
    with larder_error("store.denied") as caught:
        probe_storage(store, "work/probe-")
    assert needed in caught.value.hint


def test_the_storage_probe_leaves_nothing_behind():
    store = bucket("probe-clean")
    probe_storage(store, "work/probe-")
    assert list(store.list()) == []
    broken = bucket("probe-broken", "get")
    with pytest.raises(StoreError):
        probe_storage(broken, "work/probe-")
    assert list(broken.list()) == []


def test_directories_are_not_probed(tmp_path):
    probe_storage(open_store(str(tmp_path / "none")), "work/probe-")
    probe_source(open_store(str(tmp_path / "none")))
    assert not (tmp_path / "none").exists()


def test_one_unreadable_object_does_not_refuse_a_source():
    others = dict.fromkeys("bc", Fail(StoreError("store.full", "not asked")))
    with larder_error("store.full") as caught:
        probe_source(bucket("probe-next", keys={"a": REFUSED, **others}))
    with pytest.raises(StoreError) as caught:
        probe_source(bucket("probe-all", keys=dict.fromkeys("abc", REFUSED)))
    assert "s3:GetObject" in caught.value.hint
    gone = Fail(NotFoundError("object.missing", "no such object"))
    probe_source(bucket("probe-vanished", keys={"a": gone}))


@pytest.mark.parametrize(
    "error",
    [
        StoreError("store.denied", "the credentials are refused", hint="check the profile"),
        ObjectError("object.unreadable", "the store answers 403: archived", hint="restore it"),
        StoreError("store.region", "the bucket is in eu-west-1"),
        ObjectError("object.unreadable", "the store answers 400 BadRequest"),
    ],
)
def test_other_errors_stay_as_they_are(error):
    with pytest.raises(type(error)) as caught, permission(bucket("other"), "source", "get"):
        raise error
    assert caught.value is error


# Roles and public buckets


@pytest.fixture
def own_bucket(radosgw_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"access-{uuid.uuid4().hex[:12]}"
    radosgw_server.create_bucket(name)
    for variable, value in radosgw_server.environment.items():
        monkeypatch.setenv(variable, value)
    return name


def reached(server: S3Server, bucket: str, **fields: Any) -> Any:
    return open_store(f"s3://{bucket}/", access=Access(endpoint=server.endpoint, **fields))


@pytest.mark.radosgw
def test_a_role_is_assumed_at_the_server_itself(radosgw_server, own_bucket):
    store = reached(radosgw_server, own_bucket, role=radosgw_server.role)
    store.put("k", b"by the role")
    with store.writer("large") as writer:
        writer.write(b"x" * (6 << 20))
        writer.commit()
    assert store.get("k") == b"by the role"
    assert {info.key for page in store.list() for info in page} == {"k", "large"}
    store.delete("k")
    nobody = reached(radosgw_server, own_bucket, role=f"{radosgw_server.role}-not-there")
    with larder_error("store.denied") as caught:
        nobody.get("large")
    assert f"no credentials of the role {radosgw_server.role}-not-there" in caught.value.message


@pytest.mark.radosgw
def test_anonymous_requests_read_what_is_public(radosgw_server, own_bucket, monkeypatch):
    client = radosgw_server.client()
    client.put_bucket_acl(Bucket=own_bucket, ACL="public-read")
    client.put_object(Bucket=own_bucket, Key="public", Body=b"1", ACL="public-read")
    client.put_object(Bucket=own_bucket, Key="private", Body=b"1")
    client.close()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    store = reached(radosgw_server, own_bucket, anonymous=True)
    assert [info.key for page in store.list() for info in page] == ["private", "public"]
    assert store.get("public") == b"1"
    for call in (lambda: store.get("private"), lambda: store.put("new", b"1")):
        with pytest.raises(LarderError) as caught:
            call()
        assert caught.value.code in ("object.unreadable", "store.denied")
