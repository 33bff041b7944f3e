"""A template that contradicts the cluster file is refused, by every consumer."""

from typing import Any

import pytest

from larder.experiments.consumers.determined.config import render
from larder.experiments.delivery import ConfigRequest
from tests.support.errors import larder_error
from tests.unit.experiments import test_kubernetes as kubernetes
from tests.unit.experiments import test_slurm as slurm
from tests.unit.experiments.made import cluster, delivered

ACCESS = {"region": "us-west-2", "endpoint": "http://store:9000"}
BUCKET = {"storage": {"url": "s3://bucket/", **ACCESS}}
OTHERS = {
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_REGION": "eu-west-1",
    "AWS_ENDPOINT_URL": "http://of-another:1",
    "AWS_ENDPOINT_URL_S3": "http://of-another:1",
}


def job(kind: str, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A template with these fields in what says how many nodes there are, and its container."""
    template = kubernetes.template("kubeflow" if kind == "TrainJob" else "kubernetes")
    spec = template["spec"]
    container = spec["trainer"] if kind == "TrainJob" else spec["template"]["spec"]["containers"][0]
    (container if kind == "TrainJob" else spec).update(fields)
    return template, container


def emitted(template: dict[str, Any], nodes: int = 1) -> str:
    place = ("s3://bucket/", "stream", {"nodes": {"count": nodes}, **ACCESS})
    return kubernetes.emitted(template, place).text


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("kind", ["Job", "TrainJob"])
def test_kubernetes_refuses_another_region_or_endpoint(kind, name):
    for entry in ({"value": OTHERS[name]}, {"valueFrom": {"secretKeyRef": {"name": "x"}}}):
        template, container = job(kind)
        container["env"] = [{"name": name, **entry}]
        with larder_error("config.template", "t.yaml") as caught:
            emitted(template)
        assert "env.0" in caught.value.message


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    "line",
    [
        "export {}={}",
        "{}='{}' srun true",
        "srun --export=ALL,{}={} x",
        "#SBATCH --export=ALL,{}={}",
    ],
)
def test_slurm_refuses_another_region_or_endpoint(name, line):
    script = f"#!/bin/bash\n{line.format(name, OTHERS[name])}\nsrun true\n"
    with larder_error("config.template", "t.sh") as caught:
        slurm.emitted("stream", "s3://bucket/", BUCKET, script)
    assert f"line 2: {name}" in caught.value.message


@pytest.mark.parametrize(
    "line",
    [
        "srun --export=ALL,AWS_REGION=us-west-2,OTHER=1 true",
        "(AWS_REGION=us-west-2)",
        'export AWS_REGION="us-west-2"',
        "export AWS_ENDPOINT_URL=http://store:9000",
        'echo "AWS_REGION=${AWS_REGION} LARDER_LOCATION=$LARDER_LOCATION"',
        "docker run --env AWS_REGION=$AWS_DEFAULT_REGION image",
    ],
)
def test_slurm_keeps_a_line_that_says_what_the_cluster_file_says(line):
    text, _ = slurm.emitted("stream", "s3://bucket/", BUCKET, f"#!/bin/bash\n{line}\nsrun true\n")
    assert line in text


def test_slurm_keeps_any_region_where_training_reads_no_bucket():
    slurm.emitted("bind_mount", "/mnt/x", {}, "#!/bin/bash\nexport AWS_REGION=any\nsrun true\n")


def test_an_init_container_of_one_s_own_may_use_another_region():
    template, _ = job("Job")
    others = [{"name": name, "value": value} for name, value in OTHERS.items()]
    spec = template["spec"]["template"]["spec"]
    spec["initContainers"] = [{"name": "code", "image": "x", "env": others}]
    assert "eu-west-1" in emitted(template)


@pytest.mark.parametrize(
    ("kind", "field", "place"),
    [("Job", "parallelism", "spec"), ("TrainJob", "numNodes", "spec.trainer")],
)
def test_another_number_of_nodes_is_refused(kind, field, place):
    for asked, nodes in ((1, 2), (4, 2), (2, 1), (0, 1)):
        with larder_error("config.invalid_experiment", "t.yaml") as caught:
            emitted(job(kind, **{field: asked})[0], nodes)
        assert f"asks for {asked} nodes" in caught.value.message
    for asked in ("3", 3.0, True, [3]):
        with larder_error("config.template", "t.yaml") as caught:
            emitted(job(kind, **{field: asked})[0], 3)
        assert f"{place}.{field} must be a whole number" in caught.value.message
    assert f"{field}: 3" in emitted(job(kind, **{field: 3})[0], 3)


def test_a_number_that_is_left_open_is_that_of_the_cluster_file():
    assert "numNodes: 3" in emitted(job("TrainJob")[0], 3)
    assert "numNodes: 3" in emitted(job("TrainJob", numNodes=None)[0], 3)
    with larder_error("config.invalid_experiment"):  # a Job has one pod
        emitted(job("Job")[0], 3)


def test_the_step_that_downloads_has_a_task_on_each_node_whatever_the_job_has(tmp_path):
    text, _ = slurm.emitted(*slurm.CASES["download"], slurm.SCRIPT.replace("=1", "=2"))
    (_, first), (_, second) = slurm.steps(text, tmp_path, SLURM_NTASKS_PER_GPU="1")
    assert "SLURM_NTASKS_PER_GPU" not in first
    assert second["SLURM_NTASKS_PER_GPU"] == "1"


@pytest.mark.parametrize("name", OTHERS)
def test_determined_refuses_another_region_or_endpoint_in_the_pod(name):
    env = [{"name": name, "value": OTHERS[name]}]
    containers = [{"name": "sidecar", "env": env}]
    template = {"environment": {"pod_spec": {"spec": {"containers": containers}}}}
    here = cluster("s3://bucket/", storage=ACCESS)
    render(ConfigRequest(template, *delivered("s3://bucket/"), here))
    containers.append({"name": "determined-container", "env": env})
    with larder_error("config.template", "t.yaml") as caught:
        render(ConfigRequest(template, *delivered("s3://bucket/"), here, where="t.yaml"))
    assert "environment.pod_spec.spec.containers.1.env.0" in caught.value.message
