from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from larder.config.models.copying import CopyConfig
from larder.config.urls import Access
from larder.copy.skyplane.choice import Choice, Side, choose_engine
from larder.store.base import BucketPrefix

S3 = BucketPrefix("s3", "", "bucket", "x/")
GCS = BucketPrefix("gs", "", "bucket", "x/")
LOCAL = BucketPrefix("file", "", "", "/data/")
ELSEWHERE = replace(S3, server="https://minio.example")
LIMIT = 100 * 10**9


def side(place: BucketPrefix | None, access: Access) -> Side:
    store: Any = SimpleNamespace(features=SimpleNamespace(place=place))
    return Side("", store, access)


def choose(
    source: BucketPrefix | None,
    target: BucketPrefix | None,
    *,
    engine: str = "auto",
    total_bytes: int = LIMIT,
    available: bool = True,
    accesses: tuple[Access, Access] = (Access(), Access()),
) -> Choice:
    limits = CopyConfig.model_validate({"engine": engine, "skyplane": {"min_bytes": LIMIT}})
    sides = (side(source, accesses[0]), side(target, accesses[1]))
    return choose_engine(*sides, limits=limits, total_bytes=total_bytes, available=available)


@pytest.mark.parametrize(("source", "target"), [(S3, GCS), (GCS, S3)])
def test_between_providers_skyplane_copies_much(source, target):
    assert choose(source, target) == Choice("skyplane", "100 GB between two providers")


IGNORED = [
    ((Access(anonymous=True), Access()), "the source is anonymous"),
    ((Access(role="arn:aws:iam::1:role/x"), Access()), "the source has a role"),
    ((Access(), Access(block="gcp-credentials/x")), "the storage has a role or a block"),
    ((Access(), Access(kms_key="k")), "the storage has a kms_key"),
    ((Access(), Access(requester_pays=True)), "the storage has requester_pays"),
]
PROFILES = (Access(profile="a"), Access(profile="b"))


@pytest.mark.parametrize(
    ("source", "target", "options", "reason"),
    [
        (S3, S3, {}, "both sides are at one provider"),
        (GCS, GCS, {}, "both sides are at one provider"),
        (S3, GCS, {"total_bytes": LIMIT - 10**9}, "99.0 GB is less than copy.skyplane.min_bytes"),
        (S3, GCS, {"available": False}, "`make skyplane` does that"),
        (S3, GCS, {"engine": "native"}, "copy.engine is native"),
        (S3, LOCAL, {}, "the storage is not a bucket of S3 or GCS"),
        (None, GCS, {}, "the source is not a bucket of S3 or GCS"),
        (ELSEWHERE, GCS, {}, "the source is at https://minio.example"),
        (LOCAL, S3, {"engine": "skyplane"}, "Skyplane cannot make this copy: the source is"),
        (S3, S3, {"engine": "skyplane", "accesses": PROFILES}, "have different profiles"),
        *(
            (S3, GCS, {"engine": engine, "accesses": accesses}, reason)
            for engine in ("auto", "skyplane")
            for accesses, reason in IGNORED
        ),
    ],
)
def test_everything_else_is_native(source, target, options, reason):
    choice = choose(source, target, **options)
    assert choice.engine == "native"
    assert reason in choice.reason


def test_skyplane_by_name_needs_neither_two_providers_nor_many_bytes():
    chosen = choose(S3, S3, engine="skyplane", total_bytes=1, available=False)
    assert chosen == Choice("skyplane", "copy.engine is skyplane")
