"""A secret that is passed in through every input appears nowhere: refused, and not repeated."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import images, reach, write
from pydantic import BaseModel

import larder
from flows.runs.flow_command import main
from larder.cli.exit import run
from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.pipeline.preparing import prepare
from larder.pipeline.settings import load_settings
from larder.store import open_store
from tests.support.errors import larder_error
from tests.support.stores import keys_of

CONFIGS = Path(__file__).parents[2] / "configs"
SECRET = "wJalrcanaryUtnFEMI/K7canaryMDENG/bPxRcanaryKEY"
URL = f"https://user:{SECRET}@host/x"
SIGNED = f"s3://bucket/x?X-Amz-Credential=canaryId&X-Amz-Signature={SECRET}"
TYPED = ("bool", "int", "float", "Literal")


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, bool]]:
    """The dotted keys of a file, and whether any string is allowed there."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys(inner, f"{key}.")
        else:
            yield key, not any(kind in str(inner) for kind in TYPED)


DATASET = [*keys(Dataset), ("labels.files.train", True), ("cache.records", False)]
DATASET += [("splits.train", True), ("splits.hash", True), ("labels.from", False)]
CLUSTER = [(f"cluster.{key}", text) for key, text in keys(Cluster)]
FIELDS = [pair for pair in DATASET + CLUSTER if pair[0] != "splits"]


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """A command, in a directory with configs, that is refused and repeats the secret nowhere."""
    shutil.copytree(CONFIGS, tmp_path / "configs")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LARDER_SOURCE", "source")

    def call(*arguments: str) -> dict[str, Any]:
        all_arguments = ["--dataset", "files", "--plan", "--json", *arguments]
        status = run(lambda: main("prepare", all_arguments), json=True)
        told = capsys.readouterr()
        assert "canary" not in told.out + told.err
        assert status == 2, told.err
        for path in tmp_path.rglob("*"):
            assert "canary" not in path.name
            written = path.is_file() and "configs" not in path.parts
            assert not written or b"canary" not in path.read_bytes(), path
        document: dict[str, Any] = json.loads(told.out)
        assert document["error"]["code"] != "run.internal"
        return document

    return call


@pytest.mark.parametrize(("key", "is_text"), FIELDS)
def test_every_field(refused, key, is_text, monkeypatch):
    words = [] if is_text else [SECRET, "canaryword"]
    for value in (URL, SIGNED, *words):
        refused("--set", f"{key}={value}")
    # In a file, and from a variable.
    monkeypatch.setenv("PLANTED", URL if is_text else "canaryword")
    for value in (URL, "${PLANTED}", *words[:1]):
        put(key, value)
        refused()


def put(key: str, value: str) -> None:
    dataset: dict[str, Any] = {"source": {"url": "source"}}
    cluster: dict[str, Any] = {"storage": {"url": "local"}}
    *path, last = key.removeprefix("cluster.").split(".")
    inner = cluster if key.startswith("cluster.") else dataset
    for part in path:
        inner = inner.setdefault(part, {})
    inner[last] = value
    Path("configs/datasets/files.yaml").write_text(json.dumps(dataset))
    Path("configs/clusters/local.yaml").write_text(json.dumps(cluster))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dataset", URL],
        ["--cluster", URL],
        ["--config-dir", URL],
        ["--output", URL],
        ["--set", URL],
        ["--set", f"{URL}={URL}"],
        ["--set", SECRET],
        ["--set", "canaryword"],
        ["--set", f"source.url=[{SECRET}"],
        ["--set", f"source.url=[*{SECRET}]"],
        ["--set", f"source.url.x={SECRET}"],
        ["--set", f"splits={{train: {SECRET}, 'a b': {URL}}}"],
        ["--set", f"nodes={{{SECRET}: 1}}"],
        [URL],
        [f"--quite={SECRET}"],
        [f"--quiet={SECRET}"],
    ],
)
def test_every_flag(refused, arguments):
    refused(*arguments)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
@pytest.mark.parametrize("side", ["source", "cluster.storage"])
def test_an_endpoint_of_the_environment(refused, name, side, monkeypatch):
    monkeypatch.setenv(name, f"http://user:{SECRET}@127.0.0.1:9")
    document = refused("--set", f"{side}.url=s3://bucket/x")
    assert document["error"]["code"] == "config.secret"
    assert name in document["error"]["where"]
    # A profile keeps the environment's endpoint out of the config, but not out of use.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "canary")
    with larder_error("config.secret") as caught:
        open_store("s3://bucket/x").get("a")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda: open_store("s3://bucket/x", endpoint=f"http://user:{SECRET}@127.0.0.1:9"),
        lambda: open_store(URL),
        lambda: open_store(SIGNED),
        lambda: larder.open(f"s3://user:{SECRET}@bucket/larder/x@latest"),
        lambda: larder.open(SIGNED),
        lambda: larder.open("s3://bucket/larder/x", endpoint=f"http://u:{SECRET}@127.0.0.1:9"),
        lambda: larder.open("s3://bucket/larder/x", endpoint=f"ftp://u:{SECRET}@127.0.0.1:9"),
    ],
)
def test_arguments_in_python(call):
    with larder_error("config.secret") as caught:
        call()
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [
        "max_restarts: many\n",
        "unknwon: 1\n",
        "bind_mounts: [{host_path: here}]\n",
        "resources: [1]\n",
        "entrypoint: {a: [*wJalrcanary]}\n",
        "entrypoint: &canary &canary x\n",
        "entrypoint: !canary x\n",
        "entrypoint: x: canary\n",
        "data: {path: canary}\n",
    ],
)
def test_secrets_of_a_template(refused, template):
    path = Path("configs/experiments/default.yaml")
    variables = f"environment:\n  environment_variables: [TOKEN={SECRET}, {SECRET}]\n"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("entrypoint")]
    path.write_text("\n".join(kept) + "\n" + variables + template)
    refused()


def test_a_run_leaves_no_secret_of_a_profile(rclone_server, tmp_path, monkeypatch):
    """The keys of a profile and of the environment go to the server, and nowhere else."""
    server = rclone_server
    server.create_bucket("canaries")
    where = reach(server)
    write("s3://canaries/source", images(), **where)
    keys = f"aws_access_key_id = {server.access_key}\naws_secret_access_key = {server.secret_key}"
    (tmp_path / "aws").write_text(f"[profile planted]\n{keys}\nrole_note = {SECRET}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws"))
    monkeypatch.setenv("AWS_SESSION_TOKEN", SECRET)
    settings = [
        f"{side}.{key}={value}"
        for side in ("source", "cluster.storage")
        for key, value in {**where, "profile": "planted"}.items()
    ]
    settings += ["source.url=s3://canaries/source", "cluster.storage.url=s3://canaries/local"]
    output = tmp_path / "out"
    asked = load_settings("files", config_dir=CONFIGS, settings=settings, output=output)
    document = prepare(asked)
    texts = [repr(document), *(Path(config).read_text() for config in document["configs"])]
    stored = open_store("s3://canaries/local", **where)
    texts += [bytes(stored.get(key)).decode("latin-1") for key in keys_of(stored)]
    assert len(texts) > 10
    for text in texts:
        for secret in (server.secret_key, server.access_key, "canary"):
            assert secret not in text, text[:200]
