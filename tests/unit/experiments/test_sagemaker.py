import copy
import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import boto3
import botocore.validate
import pytest
from botocore.stub import Stubber
from hypothesis import given
from hypothesis import strategies as st

from larder.config.load import load_template
from larder.config.models.cluster import Cluster
from larder.errors import ConfigError
from larder.experiments.consumers.sagemaker import config
from larder.experiments.consumers.sagemaker.config import expand_braces
from larder.experiments.consumers.sagemaker.request_rules import check_request, model_problems
from larder.experiments.delivery import ConfigRequest, DeliveredSplit, VersionContents
from tests.support.errors import larder_error
from tests.support.golden import check_golden
from tests.support.processes import CHECKOUT
from tests.unit.experiments.made import VERSION, version_of

INDEX = (f"versions/{VERSION}/version.json", "segments/5eed/segment.json")


def template() -> dict[str, Any]:
    return load_template(CHECKOUT / "configs", "sagemaker/default.yaml")


def split(name: str, *segments: str, clean: bool = True, shards: int = 2, ext: str = "tar") -> Any:
    prefixes = tuple(f"segments/{segment}/shards/{name}/" for segment in segments)
    patterns = tuple(
        f"{prefix}d-{name}-{{{shards * n:06d}..{shards * n + shards - 1:06d}}}.{ext}"
        for n, prefix in enumerate(prefixes)
    )
    total = shards * len(segments)
    return DeliveredSplit(
        10 * total, total, total * 10**9, patterns, prefixes=prefixes if clean else ()
    )


def cluster(url: str, nodes: int = 1, **consumer: Any) -> Cluster:
    found = {"kind": "sagemaker", **consumer}
    fields = {"name": "sm", "storage": {"url": url}, "nodes": {"count": nodes}, "consumer": found}
    return Cluster.model_validate(fields)


def emitted(
    delivery: str,
    splits: dict[str, DeliveredSplit],
    *,
    url: str = "s3://bucket/team data/",
    force: bool = False,
    changes: dict[str, Any] | None = None,
    **consumer: Any,
) -> tuple[dict[str, Any], dict[str, str]]:
    here = version_of(url, delivery, "digits", replaces=force)
    contents = VersionContents("", splits, index=INDEX)
    merged = {**template(), **(changes or {})}
    *manifests, job = config.config_files(
        ConfigRequest(merged, here, contents, cluster(url, **consumer))
    )
    assert (job.name, job.in_storage) == ("training-job.json", False)
    assert all(file.in_storage for file in manifests)
    return json.loads(job.text), {f"{here.root}{file.name}": file.text for file in manifests}


def sources(request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        channel["ChannelName"]: next(iter(channel["DataSource"].values()))
        for channel in request["InputDataConfig"]
    }


def listed(text: str) -> list[str]:
    head, *names = json.loads(text)
    assert head["prefix"].endswith("/")
    return [head["prefix"] + name for name in names]


ONE = {"train": split("train", "a"), "validation": split("validation", "a", shards=1)}
GROWN = {"train": split("train", "a", "b"), "validation": split("validation", "a", shards=1)}
FILE_SYSTEM = {"type": "fsx", "id": "fs-0123456789abcdef0", "directory": "/abcdb/data"}
VPC = {"subnets": ["subnet-1"], "security_groups": ["sg-1"]}
CASES: dict[str, tuple[str, dict[str, DeliveredSplit], dict[str, Any]]] = {
    "file": ("file", ONE, {}),
    "file-grown": ("file", GROWN, {"sharded": True, "shuffle_seed": 7}),
    "fast-file-grown": ("fast_file", GROWN, {}),
    "pipe": ("pipe", ONE, {"record_io": True, "shuffle_seed": 7}),
    "pipe-augmented": ("pipe", ONE, {"augmented": True}),
    "fsx": ("fsx", GROWN, {"url": "/fsx/", "file_system": FILE_SYSTEM, "vpc": VPC}),
    "efs": (
        "efs",
        ONE,
        {"url": "/efs/", "file_system": {**FILE_SYSTEM, "type": "efs"}, "vpc": VPC},
    ),
}


@pytest.fixture(scope="module")
def client() -> Any:
    session = boto3.Session("a", "b", region_name="us-west-2")
    return session.client("sagemaker")


@pytest.mark.parametrize("name", CASES)
def test_the_files_are_the_golden_ones_and_boto3_accepts_them(name, client):
    delivery, splits, options = CASES[name]
    request, manifests = emitted(delivery, splits, **options)
    text = json.dumps({"request": request, "manifests": manifests}, indent=1) + "\n"
    check_golden(f"sagemaker/{name}.json", text)
    with Stubber(client) as stub:  # nothing is sent: a training job needs an account
        arn = "arn:aws:sagemaker:us-west-2:123456789012:training-job/x"
        stub.add_response("create_training_job", {"TrainingJobArn": arn}, request)
        client.create_training_job(**request)


segments = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True)
some_splits = st.dictionaries(
    st.sampled_from(["train", "validation", "te_st", "x-1"]),
    st.tuples(segments, st.booleans(), st.integers(1, 5)),
    min_size=1,
)
urls = st.text("ab c\"'é日&$`;", max_size=12).map(lambda text: f"s3://bucket/{text}")


@given(some_splits, urls, st.sampled_from(["file", "fast_file", "pipe", "augmented"]))
def test_channels_have_all_shards_and_nothing_else(chosen, url, mode):
    splits = {
        name: split(name, *found, clean=clean, shards=shards)
        for name, (found, clean, shards) in chosen.items()
    }
    if mode == "fast_file" and not all(clean for _, clean, _ in chosen.values()):
        with larder_error("config.invalid_value") as caught:
            emitted(mode, splits, url=url)
        assert "larder compact" in caught.value.hint
        return
    augmented = mode == "augmented"
    request, texts = emitted("pipe" if augmented else mode, splits, url=url, augmented=augmented)
    root = f"{url.rstrip('/')}/larder/digits/"
    shards = {
        name: [f"{root}{key}" for pattern in found.patterns for key in expand_braces(pattern)]
        for name, found in splits.items()
    }
    read: dict[str, list[str]] = {}
    for channel, source in sources(request).items():
        name, where = channel.partition(".")[0], source["S3Uri"]
        keys = read.setdefault(name, [])
        if source["S3DataType"] == "S3Prefix":
            keys += [key for key in chain(*shards.values()) if key.startswith(where)]
        elif source["S3DataType"] == "ManifestFile":
            keys += listed(texts[where])
        else:
            rows = texts[where].split("\n")[:-1]
            keys += [json.loads(row)[source["AttributeNames"][0]] for row in rows]
    assert read == {**shards, "larder": [f"{root}{key}" for key in INDEX]}


def test_recordio_is_streamed_without_the_files_beside_it():
    splits = {"train": split("train", "a", ext="rec")}
    _, manifests = emitted("pipe", splits)
    assert len(listed(manifests[min(manifests, key=len)])) == 2
    request, manifests = emitted("file", {"train": split("train", "a", "b", ext="rec")})
    assert len(listed(manifests[sources(request)["train"]["S3Uri"]])) == 12
    request, manifests = emitted("file", splits, sharded=True)
    assert len(listed(manifests[sources(request)["train"]["S3Uri"]])) == 2
    with larder_error("config.invalid_value", "consumer.record_io"):
        emitted("pipe", splits, record_io=True)


def test_the_volume_is_large_enough():
    request, _ = emitted("file", ONE)
    assert request["ResourceConfig"]["VolumeSizeInGB"] == 3 + 10
    request, _ = emitted("fast_file", ONE)
    assert request["ResourceConfig"]["VolumeSizeInGB"] == 1 + 10  # the indexes
    small = {"ResourceConfig": {**template()["ResourceConfig"], "VolumeSizeInGB": 2}}
    with larder_error("config.invalid_experiment") as caught:
        emitted("file", ONE, changes=small)
    assert "ResourceConfig.VolumeSizeInGB" in str(caught.value)
    four = {"train": split("train", "a", shards=4)}
    with pytest.raises(ConfigError):
        emitted("file", four, changes=small, nodes=2)
    emitted("file", four, changes=small, nodes=2, sharded=True)
    uneven = {"train": split("train", "a", shards=5)}  # of 1 GB: three of them on one instance
    with pytest.raises(ConfigError):
        emitted("file", uneven, changes=small, nodes=2, sharded=True)
    del small["ResourceConfig"]["VolumeSizeInGB"]
    request, _ = emitted("file", uneven, changes=small, nodes=2, sharded=True)
    assert request["ResourceConfig"]["VolumeSizeInGB"] == 3 + 10


def test_a_sharded_channel_of_the_template_makes_no_volume_large_enough():
    mine = channel(ChannelName="x", S3={"S3DataDistributionType": "ShardedByS3Key"})
    resources = {**template()["ResourceConfig"], "VolumeSizeInGB": 1}
    changes = {"ResourceConfig": resources, "InputDataConfig": [mine]}
    with pytest.raises(ConfigError, match=r"ResourceConfig\.VolumeSizeInGB"):
        emitted("file", ONE, changes=changes, nodes=4)


def test_there_are_as_many_instances_as_the_cluster_file_says():
    request, _ = emitted("file", ONE, nodes=2)
    assert request["ResourceConfig"]["InstanceCount"] == 2
    resources = template()["ResourceConfig"]
    group = {"InstanceType": "ml.g5.2xlarge", "InstanceCount": 1}
    groups = [{"InstanceGroupName": name, **group} for name in "ab"]
    for counts in ({"InstanceCount": 2}, {"InstanceGroups": groups}):
        changes = {"ResourceConfig": {**resources, **counts}}
        emitted("file", ONE, changes=changes, nodes=2)
        with pytest.raises(ConfigError, match=r"InstanceCount: it has 2 .* is 1"):
            emitted("file", ONE, changes=changes)


def test_what_the_template_has_is_kept():
    mine = {
        "ChannelName": "weights",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/w/"}},
    }
    changes = {"TrainingJobName": "mine", "InputDataConfig": [mine]}
    for delivery in ("fast_file", "pipe", "file"):
        request, _ = emitted(delivery, ONE, changes=changes)
        assert request["TrainingJobName"] == "mine"
        assert request["InputDataConfig"][0] == mine
        assert request["AlgorithmSpecification"]["TrainingInputMode"] == "File"
    mine["DataSource"]["S3DataSource"]["S3Uri"] = "s3://b/w/model.tar.gz"
    request, _ = emitted("file", ONE, changes=changes)
    assert request["InputDataConfig"][0] == mine
    mine["ChannelName"] = "train"
    with pytest.raises(ConfigError, match=r"InputDataConfig\.0"):
        emitted("file", ONE, changes=changes)
    changes["Environment"] = {"LARDER_LOCATION": "/x", "LARDER_LIST_TRAIN": "/y", "A": "b"}
    request, _ = emitted("file", ONE, changes=changes, force=True)
    assert list(sources(request)) == ["train", "validation", "larder"]
    assert request["Environment"] == {"A": "b"}


@pytest.mark.parametrize("options", [{}, {"file_system": FILE_SYSTEM}])
def test_what_sagemaker_cannot_read_is_refused(options):
    with larder_error("config.invalid_value"):
        emitted("efs", ONE, url="/efs/", **options)


def test_shards_with_omitted_samples_are_in_no_channel_of_their_own():
    mounted = version_of("/fsx/", "fsx", shards=False)
    there = cluster("/fsx/", file_system=FILE_SYSTEM, vpc=VPC)
    splits = {"train": split("train", "a")}
    (job,) = config.config_files(
        ConfigRequest(template(), mounted, VersionContents("", splits), there)
    )
    assert list(sources(json.loads(job.text))) == ["larder"]


@pytest.mark.parametrize(
    "changes",
    [
        {"Environment": {"LARDER_LOCATION": "/x"}},
        {"Environment": {"LARDER_SHARDS_TRAIN": "/x"}},
        {"Environment": ["A=b"]},
        {"InputDataConfig": {}},
        {"AlgorithmSpecification": "x"},
        {"ResourceConfig": []},
    ],
    ids=str,
)
def test_a_template_in_the_way_or_of_another_form_is_refused(changes):
    with larder_error("config.template"):
        emitted("file", ONE, changes=changes)


@given(st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True))
def test_a_job_has_a_name_whatever_the_dataset_is_called(name):
    here, contents = version_of("s3://bucket/", "file", name), VersionContents("", ONE, index=INDEX)
    (*_, job) = config.config_files(
        ConfigRequest(template(), here, contents, cluster("s3://bucket/"))
    )
    assert len(json.loads(job.text)["TrainingJobName"]) + len("-20261125-235959") <= 63


def test_the_line_that_submits_names_the_region():
    here = Cluster.model_validate(
        {"name": "sm", "storage": {"url": "s3://bucket/", "region": "us-west-2"}}
    )
    assert "--region us-west-2" in config.command(Path("out"), [], here)
    assert "--region" not in config.command(Path("out"), [], cluster("s3://bucket/"))


def channel(**changes: Any) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://b/x/", **changes.pop("S3", {})}
    data = {"S3DataSource": source, **changes.pop("DataSource", {})}
    return {"ChannelName": "train", "DataSource": data, "InputMode": "File", **changes}


def request_of(*channels: dict[str, Any]) -> dict[str, Any]:
    request = copy.deepcopy({**template(), "TrainingJobName": "x"})
    request["AlgorithmSpecification"]["TrainingInputMode"] = "File"
    return {**json.loads(json.dumps(request)), "InputDataConfig": list(channels)}


MOUNTED = {
    "FileSystemId": "fs-01234567",
    "FileSystemType": "EFS",
    "FileSystemAccessMode": "ro",
    "DirectoryPath": "/x",
}
S3 = "InputDataConfig.0.DataSource.S3DataSource"
ROWS = "AugmentedManifestFile"


@pytest.mark.parametrize(
    ("channels", "place"),
    [
        ([channel(InputMode="Fast")], "InputDataConfig.0.InputMode"),
        ([channel(ChannelName="x\n")], "InputDataConfig.0.ChannelName"),
        ([channel(ChannelName="x" * 65)], "InputDataConfig.0.ChannelName"),
        ([channel(S3={"S3Uri": "/x/"})], f"{S3}.S3Uri"),
        ([channel(ChannelName=f"c{n}") for n in range(21)], "InputDataConfig"),
        ([channel(DataSource={"FileSystemDataSource": MOUNTED})], "InputDataConfig.0.DataSource"),
        ([channel(), channel()], "InputDataConfig.1.ChannelName"),
        ([channel(InputMode="FastFile", S3={"S3DataType": "ManifestFile"})], f"{S3}.S3DataType"),
        ([channel(S3={"S3DataType": ROWS, "AttributeNames": ["a"]})], f"{S3}.S3DataType"),
        ([channel(S3={"AttributeNames": ["a"]})], f"{S3}.AttributeNames"),
        ([channel(InputMode="Pipe", S3={"S3DataType": ROWS})], f"{S3}.AttributeNames"),
        ([channel(CompressionType="Gzip")], "InputDataConfig.0.CompressionType"),
        ([channel(RecordWrapperType="RecordIO")], "InputDataConfig.0.RecordWrapperType"),
        (
            [channel(InputMode="FastFile", ShuffleConfig={"Seed": 1})],
            "InputDataConfig.0.ShuffleConfig",
        ),
        (
            [channel(S3={"S3DataDistributionType": "ShardedByS3Key"})],
            f"{S3}.S3DataDistributionType",
        ),
        ([{"ChannelName": "x", "DataSource": {"FileSystemDataSource": MOUNTED}}], "VpcConfig"),
    ],
)
def test_mistakes_that_botocore_accepts_are_found(channels, place, client):
    request = request_of(*channels)
    shape = client.meta.service_model.operation_model("CreateTrainingJob").input_shape
    assert not botocore.validate.ParamValidator().validate(request, shape).has_errors()
    request["ResourceConfig"]["InstanceCount"] = 4
    with larder_error("config.invalid_experiment", "t.yaml") as caught:
        check_request(request, {"train": (3, 0)}, 4, where="t.yaml")
    assert f" {place}: " in str(caught.value)


def test_every_mistake_that_botocore_finds_is_named_and_no_value_is_shown():
    request = request_of(channel())
    request["StoppingCondition"]["MaxRuntimeInSeconds"] = 0
    request["ResourceConfig"]["InstanceCount"] = -1
    secret = {"a": "SECRET, type: <class 'x'>, SECRET\nSECRET"}
    request["Environment"] = {"TOKEN": secret, "NUMBER": 8675309123}
    ((_, text),) = model_problems(request)
    for name in ("MaxRuntimeInSeconds", "InstanceCount", "Environment.TOKEN, type: <class 'dict'>"):
        assert name in text
    assert not {"SECRET", "8675309123"} & set(re.findall(r"\w+", text))


def test_a_right_request_has_no_problems():
    request = request_of(channel(InputMode="Pipe", CompressionType="Gzip"))
    request["ResourceConfig"]["InstanceType"] = "ml.p99.48xlarge"  # newer than botocore
    assert list(model_problems(request)) == []
    check_request(request, {"train": (1, 0)}, 1)


def test_channels_of_the_template_stay_beside_grown_splits():
    """Sixteen segments of two splits are more channels than a job has."""
    many = {name: split(name, *"abcdefghijklmnop") for name in ("train", "validation")}
    with pytest.raises(ConfigError, match="InputDataConfig: at most 20"):
        emitted("fast_file", many)
    emitted("file", many)
    file_system = {**FILE_SYSTEM, "type": "efs"}
    request, _ = emitted("efs", many, url="/efs/", file_system=file_system, vpc=VPC)
    assert list(sources(request)) == ["larder"]


def test_clusters_that_list_other_objects_have_manifests_of_their_own():
    _, files = emitted("file", GROWN)
    _, augmented = emitted("pipe", GROWN, augmented=True)
    assert len(files.keys() | augmented.keys()) == 4
    assert files.items() & augmented.items() == {
        item for item in files.items() if "/larder-" in item[0]
    }
