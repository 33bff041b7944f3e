"""Settings of commands that name a source and a storage: arguments, --set, and a cluster."""

from typing import Any

import pytest

from larder.config.models.cluster import Cluster
from larder.copy.copy_settings import Argument, CopyPlaces, read_places
from larder.errors import ConfigError, ProblemsError


def places(
    source: str = "s3://bucket/from",
    storage: str = "s3://bucket/to",
    *settings: str,
    cluster: Cluster | None = None,
    include: Any = None,
) -> CopyPlaces:
    given = (
        Argument(("source", "url"), source, "SOURCE"),
        Argument(("storage", "url"), storage, "STORAGE"),
        Argument(("source", "include"), include, "--include"),
    )
    return read_places(given, settings, cluster)


def problems(*arguments: str, **more: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(ConfigError) as caught:
        places(*arguments, **more)
    return [(each.code, each.where, each.message) for each in ProblemsError.of(caught.value)]


def test_each_mistake_is_named_by_what_was_given():
    assert problems("ftp://x", "") == [
        ("config.unsupported_url", "SOURCE", "unsupported scheme ftp://"),
        ("config.invalid_value", "STORAGE", "expected a non-empty string"),
    ]
    found = problems("a", "b", "copy.concurrency=true", "source.nope=1", "cluster.storage.url=x")
    assert [(code, where) for code, where, _ in found] == [
        ("config.unknown_key", "--set cluster.storage.url"),
        ("config.unknown_key", "--set source.nope"),
        ("config.invalid_value", "--set copy.concurrency"),
    ]
    ((code, where, _),) = problems("a", "b", "copy")
    assert (code, where) == ("config.invalid_setting", "--set")


CLUSTER = Cluster.model_validate(
    {
        "name": "c",
        "storage": {"url": "s3://bucket/to", "region": "us-west-2", "profile": "p"},
        "copy": {"concurrency": 5, "skyplane": {"max_instances": 3}},
        "runner": {"workers": 7},
    }
)


@pytest.mark.parametrize(
    ("storage", "reached"),
    [
        ("s3://bucket/to", True),
        ("s3://bucket/to/", True),
        ("s3://bucket/to/below", True),
        ("s3://bucket/together", False),
        ("s3://bucket", False),
        ("gs://bucket/to", False),
        ("bucket/to", False),
    ],
)
def test_a_cluster_gives_limits_and_how_its_storage_is_reached(storage, reached):
    found = places("s3://bucket/from", storage, "copy.verify=size", cluster=CLUSTER)
    assert (found.copy_.concurrency, found.copy_.skyplane.max_instances) == (5, 3)
    assert (found.copy_.verify, found.runner.workers) == ("size", 7)
    assert (found.storage.access.profile == "p") == reached
    assert (found.storage.access.region == "us-west-2") == reached
    assert found.source.access.profile is None


def test_settings_replace_what_a_cluster_gives():
    settings = ("storage.region=eu-west-1", "copy.concurrency=9")
    found = places("a", "s3://bucket/to/x", *settings, cluster=CLUSTER)
    assert found.storage.access.region == "eu-west-1"
    assert (found.storage.access.profile, found.copy_.concurrency) == ("p", 9)
