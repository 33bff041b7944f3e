"""What is advised in 49 situations of teams, as people who know them have judged it."""

import math
from pathlib import Path

import pytest

from larder.errors import ConfigError
from larder.jobs.results import Totals
from larder.pipeline.delivery_facts import choices, delivery_document
from larder.pipeline.settings import load_settings

MB, GB, TB = 10**6, 10**9, 10**12
S3 = "s3://us-west-2-bucket/"
SIZES = {"omitted": 0, "unlisted": False, "cache_bytes": None}
BUCKET = {"storage.url": S3, "storage.region": "us-west-2"}
ON_S3 = BUCKET | {"nodes.mounts": "[]", "nodes.region": "us-west-2"}
KUBEFLOW = ON_S3 | {"consumer.kind": "kubeflow"}
NFS = {"storage.url": "/mnt/data/team"}
WASABI = {
    "storage.url": S3,
    "storage.endpoint": "https://s3.eu-central-1.wasabisys.com",
    "storage.region": "eu-central-1",
    "nodes.disk_bytes": "8 TB",
}
NVME = {"nodes.downloads": "{host_path: /nvme, container_path: /nvme}"}
ON_PREMISES = {"nodes.provider": "on-premises", "nodes.region": "null", "nodes.disk_bytes": "8 TB"}
VPC = {"consumer.vpc": "{subnets: [subnet-0a1b2c3d], security_groups: [sg-0a1b2c3d]}"}


def mounted(kind: str, directory: str) -> dict[str, str]:
    system = f"{{type: {kind}, id: fs-0123456789abcdef0, directory: {directory}}}"
    storage = {"storage.url": f"/{kind}/data", "storage.region": "null"}
    return {**storage, "consumer.file_system": system, **VPC}


def training(epochs: float = 1, seconds: int | None = None, **more: object) -> dict[str, object]:
    return {"epochs": epochs, "training_seconds": "null" if seconds is None else seconds, **more}


K8S, AWS, SM = "kubernetes", "aws-us-west-2", "sagemaker"
RANKS8 = {"nodes.ranks": 8}
NEAR, NOT_NEAR = "in the region of the storage, where reading is fast", "is not known"
FAR = "Put the storage beside the nodes first"
ONCE = "once for all processes of a node"
UNSAID = "training_seconds does not say"
# fmt: off
SITUATIONS: list[tuple[str, float, dict, dict, str, float, str]] = [
    # cluster file, bytes, keys of cluster, keys of experiment; delivery, bytes moved, words
    ("local", MB, NFS, training(context_bytes="300 kB"), "inline", MB, "within"),
    ("local", MB, NFS, training(), "bind_mount", MB, "bind mount"),
    (AWS, 90 * MB, {}, training(trials=64, context_bytes="1 MB"), "inline", 5760 * MB, "within"),
    (AWS, 20 * GB, RANKS8, training(90, 72_000), "download", 20 * GB, "160 GB on each node"),
    (AWS, 150 * GB, RANKS8, training(90, 72_000), "download", 150 * GB, "little beside"),
    (AWS, 150 * GB, NVME, training(0.1, 600, trials=64), "download", 150 * GB, "once for all"),
    (AWS, 2 * TB, {"nodes.disk_bytes": "null"}, training(10), "stream", 20 * TB, "disk_bytes"),
    ("local", 2 * TB, {"storage.url": S3, "storage.endpoint": "http://minio.example.com:9000"}
     | {"nodes.provider": "on-premises"}, training(90), "stream", 180 * TB, NOT_NEAR),
    (AWS, 2 * TB, ON_PREMISES, training(90, 864_000), "download", 2 * TB, FAR),
    ("slurm", 2 * TB, BUCKET | ON_PREMISES | NVME | {"nodes.count": 4}
     | {"nodes.bytes_per_second": "125 MB"}, training(90, 864_000), "download", 8 * TB, FAR),
    ("slurm", 200 * GB, NFS | NVME | {"nodes.count": 8, "nodes.disk_bytes": "4 TB"}
     | {"nodes.bytes_per_second": "15 MB"}, training(90), "download", 1600 * GB, "41 h 40 min at"),
    ("local", 200 * GB, NFS, training(90, access="random"), "bind_mount", 18 * TB, "bind mount"),
    (K8S, 2 * TB, ON_S3 | {"nodes.disk_bytes": "500 GB"}, training(10, 360_000), "stream",
     20 * TB, "do not fit"),
    (K8S, 30 * GB, ON_S3 | {"nodes.disk_bytes": "500 GB"}, training(50, 36_000), "download",
     30 * GB, "little beside"),
    ("kubernetes", 30 * GB, KUBEFLOW | {"nodes.disk_bytes": "500 GB", "nodes.count": 2},
     training(50, 36_000), "stream", 1500 * GB, "every epoch"),
    (K8S, 500 * GB, ON_S3 | {"nodes.region": "eu-central-1", "nodes.disk_bytes": "2 TB"},
     training(30, 360_000), "download", 500 * GB, f"{FAR}: set storage.url to a bucket in eu-c"),
    (SM, 30 * GB, {}, training(10, 36_000), "file", 30 * GB, "are little"),
    (SM, 40 * GB, {}, training(0.05, 60), "fast_file", 2 * GB, "does not pay"),
    (SM, 80 * GB, {}, training(20, 36_000), "file", 80 * GB, "little beside"),
    (SM, 80 * GB, {}, training(20), "fast_file", 1600 * GB, UNSAID),
    (SM, 2 * TB, {}, training(3), "fast_file", 6 * TB, "that is large"),
    (SM, 2 * TB, {}, training(3, access="random"), "fast_file", 6 * TB, "FSx for Lustre"),
    (SM, 100 * TB, {"nodes.count": 16}, training(), "fast_file", 100 * TB, "can divide"),
    (SM, 30 * GB, {"shard": MB}, training(1, 36_000), "file", 30 * GB, "shards.bytes: 150 MB"),
    (SM, 30 * GB, {}, training(20, 36_000, access="random"), "file", 30 * GB, "any order"),
    (SM, 200 * GB, {"nodes.disk_bytes": "3800 GB"}, training(100, 259_200), "fast_file",
     20 * TB, "that is large"),
    (SM, 2 * TB, mounted("fsx", "/abcdb/data"), training(), "fsx", 2 * TB, "on FSx for Lustre"),
    ("slurm", 100 * TB, BUCKET | {"storage.endpoint": "http://ceph.example.com"}
     | {"nodes.count": 64, "nodes.disk_bytes": "4 TB"}, training(), "stream", 100 * TB, NOT_NEAR),
    (AWS, 150 * GB, {"nodes.provider": "gcp", "nodes.region": "us-west1"}, training(90, 72_000),
     "download", 150 * GB, f"{FAR}: set storage.url to a bucket in Google Cloud us-west1"),
    (AWS, 150 * GB, {"consumer.release": "'0.19.9'"}, training(90, 72_000), "download", 150 * GB,
     "hook without Larder"),
    (AWS, 20 * GB, RANKS8 | {"nodes.count": 4}, training(1, 600, trials=100), "stream", 2 * TB,
     "too long"),
    (SM, 30 * GB, {"nodes.region": "eu-west-1"}, training(), "refused", 0, "own region only"),
    ("local", 2 * TB, WASABI, training(90, 864_000), "download", 2 * TB, NOT_NEAR),
    ("local", 2 * TB, WASABI | {"nodes.provider": "aws", "nodes.region": "us-east-1"},
     training(90), "bucket", 2 * TB, FAR),
    ("local", 2 * TB, WASABI | {"nodes.provider": "on-premises"}, training(90), "bucket", 2 * TB,
     NOT_NEAR),
    ("local", 2 * TB, WASABI | {"nodes.region": "eu-central-1"}, training(90), "bucket", 2 * TB,
     "What its server charges is not known"),
    (AWS, 150 * GB, {"nodes.region": "null"}, training(90), "bucket", 150 * GB, "charged"),
    (AWS, 20 * GB, NVME, training(0.5, 600, trials=64), "download", 20 * GB, "little beside"),
    ("kubernetes", 2 * TB, KUBEFLOW, training(), "stream", 2 * TB, "disk_bytes does not say"),
    ("croissant", 2 * TB, {"storage.url": S3}, training(), "bucket", 2 * TB, "mlcroissant"),
    (SM, 2 * TB, mounted("efs", "/data"), training(1, access="random"), "efs", 2 * TB,
     "throughput mode"),
    (SM, 60 * GB, {}, training(1, 1200, trials=100), "fast_file", 6 * TB, "too long"),
    (SM, 49 * GB, {"shard": 1.6 * MB}, training(1, 3600), "fast_file", 49 * GB, "too long"),
    (SM, 500 * GB, {"shard": 20 * MB}, training(), "fast_file", 500 * GB, "shards.bytes: 150 MB"),
    (SM, 30 * GB, {"storage.url": "gs://b-1/", "storage.region": "us-west1"}, training(),
     "refused", 0, "buckets of S3"),
    (SM, 30 * GB, {"consumer.sharded": "true", "nodes.count": 4, "validation": 1}, training(),
     "refused", 0, "set shards.count_min: 4"),
    ("slurm", 30 * GB, BUCKET | {"nodes.region": "us-west-2", "nodes.disk_bytes": "4 TB"},
     training(90, 72_000), "stream", 2700 * GB, NEAR),
    (SM, 80 * GB, {"nodes.count": 4}, training(90, 36_000), "file", 320 * GB, "little beside"),
    (AWS, 50 * GB, {}, training(90, template="resnet50.yaml"), "bucket", 50 * GB, ONCE),
]
# fmt: on


@pytest.mark.parametrize(
    ("file", "size", "cluster", "experiment", "delivery", "moved", "words"), SITUATIONS
)
def test_the_advice_is_what_was_judged_right(
    file, size, cluster, experiment, delivery, moved, words
):
    given = dict(cluster)
    objects = math.ceil(size / given.pop("shard", 150 * MB))
    shards = {"train": objects, "validation": given.pop("validation", 0)}
    keys = [f"cluster.{key}={value}" for key, value in given.items()]
    keys += [f"experiment.{key}={value}" for key, value in experiment.items()]
    if size / objects < 100 * MB and objects > 1:
        keys.append(f"shards.bytes={round(size / objects)}")
    settings = load_settings(
        "files",
        file,
        config_dir=Path(__file__).parents[3] / "configs",
        settings=keys,
        environ={"LARDER_STORAGE": S3, "LARDER_SOURCE": "s3://us-west-2-raw/x"},
    )
    offered = choices(
        settings.dataset,
        settings.cluster,
        settings.template,
        Totals(objects, int(size)),
        samples=math.ceil(size / 100_000),
        patterns=[
            f"segments/a/shards/{split}/x-{{000000..{count - 1:06}}}.tar"
            for split, count in shards.items()
            if count
        ],
        **SIZES,
    )
    if delivery == "refused":
        with pytest.raises(ConfigError, match=words):
            delivery_document(settings.dataset, settings.cluster, offered)
        return
    document = delivery_document(settings.dataset, settings.cluster, offered)
    assert document["kind"] == delivery
    first = document["options"][0]
    assert (first["delivery"], first["moved_bytes"]) == (delivery, moved)
    notes = [note["sentence"] for note in document["notes"]]
    rules = {
        option["delivery"]: " ".join(rule["sentence"] for rule in option["rules"])
        for option in document["options"]
    }
    assert any(words in each for each in (*notes, *rules.values()))
    assert document["reason"].startswith(notes[0]) == notes[0].startswith(FAR) == (FAR in words)
    if "streaming moves less" in rules.get("stream", ""):
        possible = [option for option in document["options"] if option["possible"]]
        assert first["moved_bytes"] == min(option["moved_bytes"] for option in possible)
