"""deployments/: valid files, which agree with each other and with what is in the checkout."""

import os
import re
from pathlib import Path
from typing import Any

import prefect.settings
import pytest
from compose_spec import PyCompose
from prefect.utilities.templating import apply_values
from required import read_by_others
from ruamel.yaml import YAML

from flows.runs import deployments
from flows.runs.deployments import FILE, IMAGE_DIRECTORY, deploy_all
from tests.support.errors import larder_error

ROOT = Path(__file__).parents[2]
DEPLOYMENTS = ROOT / "deployments"
COMPOSE = DEPLOYMENTS / "compose.yaml"
DOCKERFILE = (DEPLOYMENTS / "docker/Dockerfile").read_text().replace("\\\n", "")
TEMPLATE = DEPLOYMENTS / "kubernetes/base-job-template.json"
IMAGE = re.compile(r"[a-z]+:[\w.-]*\d[\w.-]*")
"""A name with Docker's own registry, and a tag that has a version."""

VALIDATE = """
import json, sys
import kubernetes_validate
refused = []
for manifest in json.load(sys.stdin):
    try:
        kubernetes_validate.validate(manifest, "1.30", strict=True)
        refused.append("")
    except kubernetes_validate.ValidationError as error:
        refused.append(error.message)
print(json.dumps(refused))
"""


def steps(instruction: str) -> list[str]:
    return re.findall(rf"(?m)^{instruction} (.+)$", DOCKERFILE)


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def test_the_dockerfile_names_what_is_there():
    (image,) = steps("FROM")
    assert IMAGE.fullmatch(image)
    assert steps("WORKDIR") == [IMAGE_DIRECTORY]
    left_out = (DEPLOYMENTS / "docker/Dockerfile.dockerignore").read_text().splitlines()
    assert {"**/.*", "**/*.env"} <= set(left_out)  # secrets
    for sources in steps("COPY"):
        for source in sources.split()[:-1]:
            assert (ROOT / source).exists()
            assert source.split("/")[0] not in left_out
    (install,) = [step for step in steps("RUN") if step.startswith("deployments/")]
    assert os.access(ROOT / install, os.X_OK)
    locks = re.findall(r"requirements/\S+", (ROOT / install).read_text())
    assert all(any(lock in sources for sources in steps("COPY")) for lock in locks)


def test_the_compose_file_is_valid_and_names_what_is_there():
    PyCompose.from_yaml(COMPOSE.read_text())
    document = load(COMPOSE)
    services = document["services"]
    built = {each["image"] for each in services.values() if "build" in each}
    (writable,) = [step for step in steps("RUN") if "mkdir" in step]
    for service in services.values():
        assert service["image"] in built or IMAGE.fullmatch(service["image"])
        if build := service.get("build"):
            context = (DEPLOYMENTS / build["context"]).resolve()
            assert (context / build["dockerfile"]).is_file()
        for module in [word for word in service.get("command", []) if "." in word]:
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file()
        for volume in service.get("volumes", []):
            source, goal = volume.split(":")[:2]
            assert source in document["volumes"] or (DEPLOYMENTS / source).exists()
            if service["image"] in built and source in document["volumes"]:
                assert goal.removeprefix(f"{IMAGE_DIRECTORY}/") in writable
        for name, needed in service.get("depends_on", {}).items():
            assert needed == {"condition": "service_healthy"}
            assert "healthcheck" in services[name]
        for name in service["environment"]:
            assert not name.startswith("PREFECT_") or hasattr(prefect.settings, name)
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    server = services["server"]["environment"]
    database = services["database"]["environment"]
    for name in ("USER", "PASSWORD"):
        assert server[f"PREFECT_SERVER_DATABASE_{name}"] == database[f"POSTGRES_{name}"]
    assert server["PREFECT_SERVER_DATABASE_NAME"] == database["POSTGRES_DB"]
    assert server["PREFECT_SERVER_DATABASE_HOST"] in services
    assert services["worker"]["environment"]["PREFECT_API_URL"] == "http://server:4200/api"


def job(**variables: Any) -> Any:
    """The manifest of a job as the worker makes it; but it adds variables and labels of its own."""
    template = load(TEMPLATE)
    fields = template["variables"]["properties"]
    values = {name: field["default"] for name, field in fields.items() if "default" in field}
    values |= {"labels": {}, "name": "a-run", "command": ["prefect", "flow-run", "execute"]}
    values["env"] = [{"name": "LARDER_SOURCE", "value": "s3://bucket/"}]
    manifest = template["job_configuration"]["job_manifest"]
    return apply_values(manifest, values | variables)


def test_jobs_of_the_kubernetes_pool_are_valid():
    used = re.findall(r'"\{\{ (\w+) \}\}"', TEMPLATE.read_text())
    assert set(used) == set(load(TEMPLATE)["variables"]["properties"])
    wrong = job(memory_request={"often": 1})
    filled = job(service_account_name="larder", cpu_limit="2", memory_limit="8Gi")
    refused = read_by_others(VALIDATE, [job(), filled, wrong])
    assert [bool(message) for message in refused] == [False, False, True], refused


def test_deployments_are_of_flows_and_configs_that_exist_and_have_tags():
    entries = load(ROOT / FILE)["deployments"]
    names = [each["name"] for each in entries]
    assert len(set(names)) == len(names)
    assert {path.stem for path in (ROOT / "configs/datasets").glob("*.yaml")} <= set(names)
    for each in entries:
        path, _, flow = each["entrypoint"].partition(":")
        assert re.search(rf"^(def )?{flow}\b", (ROOT / path).read_text(), re.MULTILINE)
        assert "larder" in each["tags"]
        for folder, kind in (("datasets", "dataset"), ("clusters", "cluster")):
            if name := each.get("parameters", {}).get(kind):
                assert (ROOT / f"configs/{folder}/{name}.yaml").is_file()
        assert all(schedule["active"] is False for schedule in each.get("schedules", []))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- name: files", "- name: digits", "there are two deployments prepare/digits"),
        ("{dataset: digits", "{dataset: BLOCK", "a block or variable"),
        ("{slug: nightly", "{parameters: {dataset: BLOCK}, slug: nightly", "a block or variable"),
        ("{dataset: digits", "{dataset: VARIABLE", "a block or variable"),
    ],
)
def test_a_name_twice_and_a_block_are_refused(tmp_path, monkeypatch, old, new, message):
    text = (ROOT / FILE).read_text()
    new = new.replace("BLOCK", '"{{ prefect.blocks.secret.key }}"')
    new = new.replace("VARIABLE", '"{{ prefect.variables.name }}"')
    (tmp_path / "deployments").mkdir()
    (tmp_path / FILE).write_text(text.replace(old, new, 1))
    monkeypatch.chdir(tmp_path)
    with larder_error("config.invalid_value", str(FILE)) as refused:
        deploy_all("p")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "variables", [{"AWS_SECRET_ACCESS_KEY": "{{ $PLANTED }}"}, {"ARGS": "--password canary"}]
)
def test_a_deployment_with_a_secret_is_refused(monkeypatch, variables):
    entry = load(ROOT / FILE)["deployments"][0]
    pool = entry["work_pool"] | {"job_variables": {"env": variables}}
    monkeypatch.setenv("PLANTED", "canary")
    with larder_error("config.secret", str(FILE)) as refused:
        deployments._filled(entry | {"work_pool": pool}, {})
    assert "canary" not in str(refused.value)
    pool["job_variables"] = {"env": {"PASSWORD": "{{ $UNSET }}", "ARGS": "--password $PASSWORD"}}
    deployments._filled(entry | {"work_pool": pool}, {})
