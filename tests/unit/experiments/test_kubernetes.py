import copy
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from required import read_by_others
from ruamel.yaml import YAML

from larder.config.load import load_template
from larder.experiments.consumers.kubernetes import config_files
from larder.experiments.delivery import ConfigFile, ConfigRequest, DeliveredSplit, VersionContents
from tests.support.errors import larder_error
from tests.support.golden import FOLDER, check_golden
from tests.support.processes import CHECKOUT
from tests.unit.experiments.made import SHARDS, VERSION, cluster_of, version_of

CLAIM = {"host_path": "/mnt/data", "container_path": "/data", "claim": "training-data"}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "mine"},
    "spec": {"containers": [{"name": "train", "image": "x"}, {"name": "sidecar", "image": "y"}]},
}


def template(kind: str) -> dict[str, Any]:
    if kind == "Pod":
        return copy.deepcopy(POD)
    return load_template(CHECKOUT / "configs", f"{kind}/default.yaml")


def contents(*, listed: bool = False) -> VersionContents:
    patterns = (
        f"{SHARDS}/train/d-train-{{000000..000003}}.tar",
        f"{SHARDS}/train/d-train-000007.tar",
    )
    path = f"versions/{VERSION}/lists/train-0123456789abcdef.txt" if listed else None
    splits = {
        "train": DeliveredSplit(50, 5, 5_000, patterns, path),
        "hold-out": DeliveredSplit(1, 1, 10, (f"{SHARDS}/hold-out/d-hold-out-000000.tar",)),
        "empty": DeliveredSplit(0, 0, 0, ()),
    }
    return VersionContents("fedcba98" * 8, splits, 10)


MOUNTED = ("/mnt/data/team", "volume", {"nodes": {"mounts": [CLAIM]}})
DOWNLOADS = {"downloads": {"host_path": "/nvme/larder", "container_path": "/cache"}}
BUCKET = ("s3://bucket/team/", "stream", {"region": "us-west-2"})
CASES: dict[str, tuple[str, tuple[str, str, dict[str, Any]]]] = {
    "job-volume": ("kubernetes", MOUNTED),
    "job-stream": ("kubernetes", BUCKET),
    "job-download": ("kubernetes", ("s3://bucket/team/", "download", BUCKET[2])),
    "job-download-claim": (
        "kubernetes",
        ("/mnt/data/team", "download", {"nodes": {"mounts": [CLAIM], **DOWNLOADS}}),
    ),
    "pod-host-path": ("Pod", ("/srv/data", "bind_mount", {})),
    "trainjob-volume": ("kubeflow", MOUNTED),
    "trainjob-stream": ("kubeflow", (*BUCKET[:2], {**BUCKET[2], "nodes": DOWNLOADS})),
}


def emitted(
    job: str | dict[str, Any],
    where: tuple[str, str, dict[str, Any]],
    found: VersionContents | None = None,
    **version: bool,
) -> ConfigFile:
    url, delivery, options = where
    here = cluster_of("kubernetes", url, **options)
    named = version_of(url, delivery, "my_digits", **version)
    config = template(job) if isinstance(job, str) else job
    (file,) = config_files(ConfigRequest(config, named, found or contents(), here, where="t.yaml"))
    assert (file.name, file.in_storage) == ("job.yaml", False)
    return file


def loaded(text: str) -> dict[str, Any]:
    config: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return config


@pytest.mark.parametrize("name", CASES)
def test_the_bytes_are_those_of_the_golden_file(name):
    check_golden(f"kubernetes/{name}.yaml", emitted(*CASES[name]).text)


VALIDATE = """
import json, sys
import kubernetes_validate
from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

def valid(config):
    try:
        if config["kind"] == "TrainJob":
            return TrainerV1alpha1TrainJob.from_dict(config).to_dict() == config
        kubernetes_validate.validate(config, "1.31", strict=True)
        return True
    except Exception:
        return False

print(json.dumps([valid(config) for config in json.load(sys.stdin)]))
"""


def test_kubernetes_and_kubeflow_accept_what_is_emitted():
    assert {path.stem for path in (FOLDER / "kubernetes").glob("*.yaml")} == set(CASES)
    right = [loaded(emitted(*case).text) for case in CASES.values()]
    wrong = copy.deepcopy(right)
    for config in wrong[:5]:
        spec = config["spec"] if config["kind"] == "Pod" else config["spec"]["template"]["spec"]
        spec["volumes"][0]["persistentVolumeClaims"] = {}
    for config in wrong[5:]:
        config["spec"]["runtimePatches"][0]["owner"] = "x"
    assert read_by_others(VALIDATE, right + wrong) == [True] * 7 + [False] * 7


@pytest.mark.parametrize("listed", [False, True])
def test_a_container_is_told_of_shards_or_of_a_list_of_them(listed):
    """It is told of neither if it has to leave samples out."""
    text = emitted("kubernetes", BUCKET, contents(listed=listed)).text
    assert ("LARDER_LIST_TRAIN" in text, "LARDER_SHARDS_TRAIN" in text) == (listed, not listed)
    assert "LARDER_SHARDS" not in emitted("kubernetes", MOUNTED, shards=False).text


def test_an_init_container_downloads_with_what_the_first_container_has():
    pod = template("Pod")
    pod["spec"]["containers"][0] |= {"env": [{"name": "A", "value": "b"}], "envFrom": []}
    place = ("s3://bucket/a$(b)/", "download", {})
    spec = loaded(emitted(pod, place).text)["spec"]
    (warming,), first = spec["initContainers"], spec["containers"][0]
    where = f"s3://bucket/a$$(b)/larder/my_digits/versions/{VERSION}"
    assert warming["command"] == ["larder", "warm", where, "--to", "/var/cache/larder"]
    assert warming["env"] == first["env"][:2]
    assert warming["volumeMounts"] == first["volumeMounts"]
    location = f"/var/cache/larder/larder/my_digits/versions/{VERSION}"
    assert {"name": "LARDER_LOCATION", "value": location} in first["env"]
    with larder_error("config.template", "t.yaml"):
        emitted("kubeflow", place)


@given(
    st.text(
        st.characters(codec="utf-8", exclude_characters="/", exclude_categories=["Cc"]),
        min_size=1,
        max_size=8,
    ).filter(lambda name: name not in (".", "..") and not re.search(r"[~{}\\]|::", name))
)
@example("a$(b)")
def test_names_come_back_as_kubernetes_reads_them(name):
    url = f"s3://bucket/{name}/"
    config = loaded(emitted("kubernetes", (url, "stream", {})).text)
    (value,) = [
        each["value"]
        for each in config["spec"]["template"]["spec"]["containers"][0]["env"]
        if each["name"] == "LARDER_LOCATION"
    ]
    assert value.replace("$$", "$") == f"{url}larder/my_digits/versions/{VERSION}"
    assert "$" not in value.replace("$$", "")


def test_what_the_template_has_is_kept_and_what_is_in_the_way_is_refused():
    pod = template("Pod")
    pod["spec"]["containers"][0]["env"] = [{"name": "AWS_DEFAULT_REGION", "value": "us-west-2"}]
    before = copy.deepcopy(pod)
    text = emitted(pod, BUCKET).text
    assert pod == before
    config = loaded(text)
    assert config["metadata"]["name"] == "mine"
    assert text.count("us-west-2") == 1
    assert config["spec"]["containers"][1] == before["spec"]["containers"][1]
    with larder_error("config.template", "t.yaml"):
        emitted(config, BUCKET)
    assert loaded(emitted(config, BUCKET, replaces=True).text) == config
    mounts = [{"name": "x", "mountPath": "/var/cache/larder/"}]
    pod["spec"]["containers"][0]["volumeMounts"] = mounts
    with larder_error("config.template", "t.yaml"):
        emitted(pod, BUCKET)


def patch(spec: dict[str, Any]) -> dict[str, Any]:
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": spec}}}}]
    runtime = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"manager": "team.example/x", "trainingRuntimeSpec": runtime}


BELOW = {"name": "node", "volumeMounts": [{"name": "of-another", "mountPath": "/data/team"}]}
STALE = {"name": "node", "env": [{"name": "LARDER_LOCATION", "value": "of-another"}]}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Pod", {"containers": [{**POD["spec"]["containers"][0], **BELOW, "name": "train"}]}),
        ("Pod", {"containers": [{**POD["spec"]["containers"][0], **STALE, "name": "train"}]}),
        ("kubeflow", {"runtimePatches": [patch({"containers": [BELOW]})]}),
        ("kubeflow", {"runtimePatches": [patch({"containers": [STALE]})]}),
        (
            "kubeflow",
            {"runtimePatches": [patch({"volumes": [{"name": "larder-data", "of-another": {}}]})]},
        ),
        ("kubeflow", {"podTemplateOverrides": [{"spec": {"containers": [BELOW]}}]}),
        ("kubeflow", {"initializer": {"dataset": {"storageUri": "s3://of-another"}}}),
    ],
    ids=str,
)
def test_what_would_hide_the_data_is_shown_or_replaced(kind, changes):
    config = template(kind)
    config["spec"] |= copy.deepcopy(changes)
    with larder_error("config.template", "t.yaml") as caught:
        emitted(config, MOUNTED)
    file = emitted(config, MOUNTED, replaces=True)
    (replaced,) = file.replaced
    assert replaced in str(caught.value)
    assert "of-another" not in file.text


@pytest.mark.parametrize(
    ("kind", "path", "value", "place_"),
    [
        ("Pod", "apiVersion", "v2", "apiVersion"),
        ("Pod", "metadata.name", "No_Name", "metadata.name"),
        ("Pod", "metadata.name", "x" * 64, "metadata.name"),
        ("Pod", "spec.containers.0.image", None, "spec.containers.0.image"),
        ("Pod", "spec.containers.0.env", [{"value": "x"}], "spec.containers.0.env.0.name"),
        ("Pod", "spec.containers.0.env", [{"name": "A", "value": 1}], "containers.0.env.0.value"),
        ("Pod", "spec.containers.0.volumeMounts", [{"name": "y"}], "volumeMounts.0.name"),
        ("Pod", "spec.volumes", [{"name": "a"}, {"name": "a"}], "spec.volumes"),
        ("kubernetes", "spec.template.spec.restartPolicy", "Always", "restartPolicy"),
        ("kubeflow", "spec.runtimeRef", {}, "spec.runtimeRef.name"),
    ],
)
def test_mistakes_are_named(kind, path, value, place_):
    config = template(kind)
    *parents, last = path.split(".")
    inner: Any = config
    for part in parents:
        inner = inner[int(part) if part.isdigit() else part]
    inner[last] = value
    with larder_error("config.invalid_experiment") as caught:
        emitted(config, BUCKET)
    assert f"{place_}: " in str(caught.value)


@pytest.mark.parametrize(
    "config", [{}, {"kind": "Deployment"}, {"kind": "Pod"}, {"kind": "Job", "spec": []}], ids=str
)
def test_a_template_that_is_no_job_is_refused(config):
    with larder_error("config.template", "t.yaml"):
        emitted(config, BUCKET)


def nodes(**fields: Any) -> dict[str, Any]:
    return {"nodes": fields}


@pytest.mark.parametrize(
    ("code", "field", "where"),
    [
        ("config.path", "", ("s3://bucket/a{0..9}/", "stream", {})),
        (
            "config.path",
            ": nodes.downloads",
            (*BUCKET[:2], nodes(downloads={"host_path": "/x/../y", "container_path": "/c"})),
        ),
        (
            "config.invalid_value",
            ": nodes.mounts",
            ("/mnt/data/team", "bind_mount", nodes(mounts=[CLAIM])),
        ),
        ("config.invalid_value", ": nodes.mounts", ("/mnt/data/team", "volume", {})),
    ],
    ids=str,
)
def test_a_place_that_pods_cannot_have_is_refused(code, field, where):
    with larder_error(code, f"cluster k{field}"):
        emitted("Pod", where)


@pytest.mark.parametrize("pair", [("Train", "train"), ("hold-out", "hold_out")], ids=str)
def test_splits_that_would_share_a_variable_are_refused(pair):
    splits = dict.fromkeys(pair, contents().splits["train"])
    with larder_error("config.invalid_value", "splits"):
        emitted("kubernetes", BUCKET, VersionContents("", splits))


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_pod_trains_on_one_node(nodes):
    url, delivery, options = BUCKET
    here = cluster_of("kubernetes", url, {"count": nodes}, **options)
    given = copy.deepcopy(POD), version_of(url, delivery), contents(), here
    if nodes == 1:
        assert config_files(ConfigRequest(*given))
        return
    with larder_error("config.invalid_experiment") as caught:
        config_files(ConfigRequest(*given))
    assert "nodes.count of the cluster file is 2" in caught.value.message


def test_a_job_that_copies_a_claim_first_is_emitted_again():
    kind, (url, delivery, options) = CASES["job-download-claim"]
    version, here = version_of(url, delivery), cluster_of("kubernetes", url, **options)
    (file,) = config_files(ConfigRequest(template(kind), version, contents(), here))
    with larder_error("config.template") as caught:
        config_files(ConfigRequest(loaded(file.text), version, contents(), here))
    assert "spec.template.spec.volumes" in caught.value.message
    forced = version._replace(replaces=True)
    (again,) = config_files(ConfigRequest(loaded(file.text), forced, contents(), here))
    assert loaded(again.text) == loaded(file.text)
