"""What each delivery adds to an experiment, and what of a template is in its way."""

import json
import shlex
import subprocess
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from larder.config.load import load_template
from larder.config.models.cluster import CONTEXT_BYTES
from larder.config.text import read_template
from larder.datalayer.cache_place import place_of
from larder.experiments.consumers.determined.companions import check_context, startup_hook
from larder.experiments.consumers.determined.config import (
    DELIVERIES,
    command,
    config_files,
    render,
)
from larder.experiments.delivery import ConfigRequest
from tests.support.errors import larder_error
from tests.support.golden import FOLDER, check_golden
from tests.support.processes import CHECKOUT
from tests.unit.experiments.made import cluster, delivered, version_of

MOUNT = {"host_path": "/srv/team", "container_path": "/mnt/data", "claim": "team-data"}
DOWNLOADS = {"host_path": "/scratch/larder", "container_path": "/larder"}
MOUNTED: dict[str, Any] = {"nodes": {"mounts": [MOUNT]}}
UNCLAIMED = {"nodes": {"mounts": [MOUNT | {"claim": None}]}}
KEPT: dict[str, Any] = {"nodes": {"downloads": DOWNLOADS}}
BUCKET, DIRECTORY = "s3://team/shared", "/srv/team/data"
SERVER = {"storage": {"region": "us-west-2", "endpoint": "http://minio:9000"}}
SITUATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "inline": (DIRECTORY, "inline", {}),
    "download": (BUCKET, "download", SERVER),
    "download-kept": (BUCKET, "download", KEPT),
    "download-directory": (
        DIRECTORY,
        "download",
        {"nodes": {"mounts": [MOUNT], "downloads": DOWNLOADS}},
    ),
    "bind-mount": (DIRECTORY, "bind_mount", MOUNTED),
    "volume": (DIRECTORY, "volume", MOUNTED),
    "bucket": (BUCKET, "bucket", SERVER),
    "stream": (BUCKET, "stream", SERVER),
    "cache": (BUCKET, "cache", KEPT),
    "cache-volume": (DIRECTORY, "cache", MOUNTED),
    "data-layer-s3": (BUCKET, "data_layer", {**SERVER, **KEPT}),
    "data-layer-gcs": ("gs://team", "data_layer", {}),
    "data-layer-shared-fs": (DIRECTORY, "data_layer", UNCLAIMED),
    "decorators-s3": (BUCKET, "data_layer", {**SERVER, **KEPT}),
    "decorators-gcs": ("gs://team", "data_layer", {}),
    "decorators-shared-fs": (DIRECTORY, "data_layer", UNCLAIMED),
}
TEMPLATES = {"bind-mount": "digits.yaml", "bucket": "resnet50.yaml"}


def emitted(name: str) -> Any:
    url, delivery, fields = SITUATIONS[name]
    release = "0.19.9" if name.startswith("data-layer") else "0.38"
    here = cluster(url, consumer={"release": release}, **fields)
    template = load_template(CHECKOUT / "configs", TEMPLATES.get(name, "default.yaml"))
    files = config_files(ConfigRequest(template, *delivered(url, delivery), here, where="t.yaml"))
    return [file for file in files if file.text]


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_bytes_are_those_of_the_golden_files(name):
    files = {file.name.replace("/", "-"): file.text for file in emitted(name)}
    folder = f"experiments/deliveries/{name}"
    for file, text in files.items():
        check_golden(f"{folder}/{file}", text)
    assert files.keys() == {path.name for path in (FOLDER / folder).iterdir()}


def test_every_delivery_has_golden_files():
    assert {delivery for _, delivery, _ in SITUATIONS.values()} == set(DELIVERIES)
    golden = (FOLDER / "experiments/deliveries").iterdir()
    assert {path.name for path in golden} == SITUATIONS.keys()


def variables(*entries: str) -> str:
    return f"environment: {{environment_variables: [{', '.join(entries)}]}}"


def pod(fields: str) -> str:
    container = f"{{name: determined-container, {fields}}}"
    return f"environment: {{pod_spec: {{spec: {{containers: [{container}]}}}}}}"


STALE = "{name: LARDER_SHARDS_TRAIN, value: of-another}"
CONFLICTS: dict[str, tuple[str, str]] = {
    "mount": ("bind_mount", "bind_mounts: [{host_path: /x, container_path: /mnt//data/}]"),
    "below": ("bind_mount", "bind_mounts: [{host_path: /x, container_path: /mnt/data/larder}]"),
    "mount of the pod": ("bind_mount", pod("volumeMounts: [{name: mine, mountPath: /mnt/data}]")),
    "stale variable": ("bucket", variables("LARDER_LOCATION=of-another", "LARDER_DEBUG=1")),
    "stale variable of the pod": ("bind_mount", pod(f"env: [{STALE}]")),
    "bucket": ("bucket", "data: {bucket: other, crop: 224} # mine"),
    "field of another delivery": ("bucket", "data: {path: /x}"),
    "endpoint": ("stream", variables("A=1", "'AWS_ENDPOINT_URL=http://of-another:1'")),
    "endpoint of S3": ("bucket", variables("'AWS_ENDPOINT_URL_S3=http://of-another:1'")),
    "region": (
        "download",
        "environment: {environment_variables: {cpu: [AWS_DEFAULT_REGION=eu-west-1]}}",
    ),
    "region that clients prefer": (
        "bucket",
        variables("AWS_DEFAULT_REGION=us-west-2", "AWS_REGION=eu-west-1"),
    ),
    "volume": (
        "volume",
        "environment: {pod_spec: {spec: {volumes: [{name: larder-data, emptyDir: {}}]}}}",
    ),
    "mount of the volume": ("volume", pod("volumeMounts: [{name: mine, mountPath: /mnt/data/}]")),
    "several": (
        "bucket",
        f"data: {{bucket: x, digest: z}}\n{variables('AWS_ENDPOINT_URL=http://of-another')}",
    ),
    "data layer": ("data_layer", "data: {data_layer: {type: shared_fs}}"),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_what_a_template_sets_in_the_place_is_shown_or_replaced(name, tmp_path):
    delivery, text = CONFLICTS[name]
    path = tmp_path / "t.yaml"
    path.write_text(f"{text}\nlabels: [mine]\n")
    url = DIRECTORY if delivery in ("bind_mount", "volume") else BUCKET
    here = cluster(url, **MOUNTED, **(SERVER if url == BUCKET else {}))
    version, contents = delivered(url, delivery)
    with larder_error("config.template", "t.yaml") as caught:
        render(ConfigRequest(read_template(path), version, contents, here, where="t.yaml"))
    assert "of-another" not in str(caught.value)
    replaced: list[str] = []
    forcing = version._replace(replaces=True)
    forced = render(ConfigRequest(read_template(path), forcing, contents, here), replaced=replaced)
    assert replaced
    assert all(place in str(caught.value) for place in replaced)
    clean = render(ConfigRequest({"labels": ["mine"]}, version, contents, here))
    assert forced["labels"] == clean.pop("labels")
    for key in ("bind_mounts", "data_layer"):
        assert forced.get(key) == clean.get(key)
    assert forced["data"] == {**clean["data"], **({"crop": 224} if name == "bucket" else {})}
    found = json.dumps(forced)
    assert found.count("us-west-2") in (0, 1, 3), "once, or once for each device"
    assert not any(word in found for word in ("of-another", "eu-west-1", "emptyDir", 'mine", "m'))


CONTAINER = {"name": "determined-container"}


def test_a_pod_of_the_template_is_kept():
    mine = {**CONTAINER, "volumeMounts": [{"name": "a", "mountPath": "/a"}]}
    spec = {
        "nodeSelector": {"gpu": "a100"},
        "volumes": [{"name": "a", "emptyDir": {}}],
        "containers": [{"name": "sidecar"}, mine],
    }
    template = {"environment": {"pod_spec": {"metadata": {"labels": {"team": "x"}}, "spec": spec}}}
    here = cluster(DIRECTORY, **MOUNTED)
    config = render(ConfigRequest(template, *delivered(DIRECTORY, "volume"), here))
    pod = config["environment"]["pod_spec"]
    assert pod["metadata"] == {"labels": {"team": "x"}}
    assert pod["spec"]["nodeSelector"] == {"gpu": "a100"}
    assert [each["name"] for each in pod["spec"]["volumes"]] == ["a", "larder-data"]
    sidecar, container = pod["spec"]["containers"]
    assert sidecar == {"name": "sidecar"}
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/a", "/mnt/data"]


@pytest.mark.parametrize(
    "environment",
    [
        [],
        {"pod_spec": "x"},
        {"pod_spec": {"spec": {"volumes": {}}}},
        {"pod_spec": {"spec": {"containers": [{**CONTAINER, "volumeMounts": 1}]}}},
    ],
    ids=str,
)
def test_a_pod_of_another_form_is_refused(environment):
    with larder_error("config.template"):
        template = {"environment": environment}
        render(
            ConfigRequest(template, *delivered(DIRECTORY, "volume"), cluster(DIRECTORY, **MOUNTED))
        )


@pytest.mark.parametrize(
    ("url", "delivery", "fields"),
    [
        ("s3://team/a{0..9}", "bucket", {}),
        ("s3://team/a\\b", "stream", {}),
        ("s3://team/a::b", "cache", {}),
        (BUCKET, "download", {"nodes": {"downloads": DOWNLOADS | {"container_path": "/a{b"}}}),
        (BUCKET, "cache", {"nodes": {"downloads": DOWNLOADS | {"container_path": "/a$HOME"}}}),
        (BUCKET, "cache", {"nodes": {"downloads": DOWNLOADS | {"container_path": "/a\nb"}}}),
    ],
)
def test_what_a_pattern_or_a_variable_cannot_hold_is_refused(url, delivery, fields, template):
    with larder_error("config.path"):
        render(ConfigRequest(template, *delivered(url, delivery), cluster(url, **fields)))


def test_a_volume_needs_a_claim(template):
    here = cluster(DIRECTORY, **UNCLAIMED)
    with larder_error("config.invalid_value"):
        render(ConfigRequest(template, *delivered(DIRECTORY, "volume"), here))


@pytest.mark.parametrize("name", [name for name in SITUATIONS if name.startswith("decorators")])
def test_the_decorators_read_what_is_emitted(name, monkeypatch):
    (config,) = emitted(name)
    experiment = YAML(typ="safe").load(config.text)
    monkeypatch.setenv("DET_EXPERIMENT_CONFIG", json.dumps(experiment))
    monkeypatch.delenv("LARDER_CACHE", raising=False)
    place = place_of("d", "v1", "_train", None, None)
    url = SITUATIONS[name][0]
    assert place.url == f"{url}/data_layer/d/v1_train"
    assert place.endpoint == experiment["data"].get("endpoint")
    writable = [
        mount["container_path"]
        for mount in experiment.get("bind_mounts", ())
        if not mount["read_only"]
    ]
    if url == DIRECTORY:
        assert f"{url}/data_layer" in writable
    elif writable:
        assert str(place.local) == f"{writable[0]}/yogadl_local_cache/d/v1_train"


text = st.text(st.characters(exclude_characters="\0\r", exclude_categories=("Cs",)), min_size=1)


@given(location=text, directory=text)
def test_bash_passes_any_path_to_the_download(location, directory):
    """Quotes, line breaks, ``$``, backquotes, and what looks like the end of the script."""
    version = version_of(BUCKET, "download")._replace(location=location)
    script = startup_hook(version, directory)
    first = script.replace("python3 -", "printf '%s\\0'", 1)
    done = subprocess.run(["bash", "-e", "-c", first], capture_output=True, check=True)
    assert done.stdout.decode().split("\0") == [location, directory, ""]


@pytest.mark.parametrize(
    ("release", "names", "expected"),
    [
        ("0.38", ["experiment.yaml"], "det experiment create {config} MODEL_DIR"),
        (
            "0.38",
            ["experiment.yaml", "startup-hook.sh"],
            "det experiment create {config} MODEL_DIR --include {out}/startup-hook.sh",
        ),
        (
            "0.19.9",
            ["experiment.yaml", "data/larder.json"],
            "det experiment create {config} MODEL_DIR --include {out}/data",
        ),
        (
            "0.19.5",
            ["experiment.yaml", "startup-hook.sh"],
            "cp -r {out}/startup-hook.sh MODEL_DIR && det experiment create {config} MODEL_DIR",
        ),
    ],
)
def test_the_line_that_submits(release, names, expected, tmp_path):
    output = tmp_path / "it's out"
    output.mkdir()
    for name in names:
        (output / name.partition("/")[0]).touch()
    here = cluster(BUCKET, consumer={"release": release})
    quoted = shlex.quote(str(output))
    config = shlex.quote(f"{output}/experiment.yaml")
    found = command(output, names, here)
    assert [shlex.split(found)] == [shlex.split(expected.format(config=config, out=quoted))]
    (output / "model_def.py").touch()
    assert shlex.split(command(output, names, here)) == [
        *shlex.split(f"det experiment create {config}"),
        str(output),
    ]


@pytest.mark.parametrize(("size", "allowed"), [(CONTEXT_BYTES - 3, True), (CONTEXT_BYTES, False)])
def test_the_limit_counts_as_determined_does(size, allowed, tmp_path):
    """A file of exactly the limit is rounded up to a multiple of three."""
    with nullcontext() if allowed else larder_error("config.invalid_value"):
        check_context({"data/x": size}, tmp_path, CONTEXT_BYTES)


@pytest.mark.parametrize("name", ["data/larder/terraform/x.tar", "data/x.pyc", "data/.git/x"])
def test_what_is_always_left_out_is_refused(name, tmp_path):
    with larder_error("config.path", name):
        check_context({name: 1}, tmp_path, CONTEXT_BYTES)
