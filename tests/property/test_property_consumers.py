"""Whatever a template contains: a config that its consumer takes, or a refusal in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from larder.config.load import load_template
from larder.config.models.cluster import Cluster
from larder.errors import ConfigError
from larder.experiments.consumers.registry import consumer_configs
from larder.experiments.delivery import (
    Advice,
    ConfigRequest,
    DeliveredSplit,
    DeliveredVersion,
    VersionContents,
)

CONFIGS = Path(__file__).parents[2] / "configs"
VERSION = "0123456789abcdef" * 2
ROOT = "s3://bucket/larder/d/"
PREFIX = "segments/5eed/shards/train/"

values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "larder-cache"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "value", "ChannelName", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(value: Any) -> list[tuple[Any, ...]]:
    if not isinstance(value, dict | list):
        return []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [(key, *rest) for key, each in items for rest in [(), *places(each)]]


ADDED: dict[str, dict[str, Any]] = {
    "sagemaker": {"InputDataConfig": [], "Environment": {}, "VpcConfig": {}},
    "kubernetes": {"metadata": {"name": "x"}},
    "kubeflow": {"metadata": {}},
    "slurm": {},
}


@pytest.mark.parametrize(
    ("kind", "delivery"),
    [
        ("sagemaker", "file"),
        ("kubernetes", "download"),
        ("kubeflow", "stream"),
        ("slurm", "stream"),
    ],
)
@settings(max_examples=150)
@given(data=st.data())
@pytest.mark.push
def test_a_template_makes_a_config_or_is_refused(kind, delivery, data):
    template = json.loads(json.dumps(load_template(CONFIGS, consumer_configs(kind).TEMPLATE or "")))
    template |= json.loads(json.dumps(ADDED[kind]))
    if kind == "kubernetes":
        pod = template["spec"]["template"]["spec"]
        pod["volumes"], pod["containers"][0]["env"] = [{"name": "a"}], [{"name": "A"}]
        pod["containers"][0]["volumeMounts"] = [{"name": "a", "mountPath": "/a"}]
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from(places(template)))
        inner = template
        for key in path:
            inner = inner[key]
        inner[last] = data.draw(values)
    cluster = Cluster.model_validate(
        {"name": "c", "storage": {"url": "s3://bucket"}, "consumer": {"kind": kind}}
    )
    place = f"{ROOT}versions/{VERSION}"
    forced = data.draw(st.booleans())
    here = DeliveredVersion("d", VERSION, place, ROOT, "s3://bucket/", Advice(delivery, ""), forced)
    train = DeliveredSplit(2, 1, 10, (f"{PREFIX}d-train-000000.tar",), prefixes=(PREFIX,))
    contents = VersionContents(
        "c0de", {"train": train}, index=(f"versions/{VERSION}/version.json",)
    )
    first, again = (rendered(kind, template, here, contents, cluster) for _ in range(2))
    assert first == again
    if isinstance(first[0], str):
        assert (first[1], len(first[2].splitlines())) == ("t.yaml", 1)


def rendered(kind: str, template: dict[str, Any], *arguments: Any) -> Any:
    try:
        request = ConfigRequest(template, *arguments, where="t.yaml")
        return consumer_configs(kind).config_files(request)
    except ConfigError as error:
        return error.code, error.where, str(error)
