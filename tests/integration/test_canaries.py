"""A secret that is passed in through every input appears nowhere: refused, and not repeated."""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import images, listing, reach, write
from pydantic import BaseModel

import larder
from flows.runs.command import main
from larder.cli.exit import run
from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.errors import ConfigError
from larder.pipeline.prepare import prepare
from larder.pipeline.settings import load_settings
from larder.store import open_store
from tests.support.errors import larder_error

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


@dataclass
class Place:
    """A directory with configs, where the command runs in this process."""

    folder: Path
    capture: pytest.CaptureFixture[str]

    def refused(self, *arguments: str, status: int = 2) -> dict[str, Any]:
        """Run a command that must be refused without repeating the secret anywhere."""
        all_arguments = ["--dataset", "files", "--plan", "--json", *arguments]
        found = run(lambda: main("prepare", all_arguments), json=True)
        told = self.capture.readouterr()
        assert "canary" not in told.out + told.err
        assert found == status, told.err
        self.check_files()
        document: dict[str, Any] = json.loads(told.out)
        assert document["error"]["code"] != "run.internal"
        return document

    def check_files(self) -> None:
        for path in self.folder.rglob("*"):
            assert "canary" not in path.name
            written = path.is_file() and "configs" not in path.parts and "aws" not in path.parts
            assert not written or b"canary" not in path.read_bytes(), path


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    shutil.copytree(CONFIGS, tmp_path / "configs")
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LARDER_SOURCE", "source")
    return Place(tmp_path, capsys)


@pytest.mark.parametrize(("key", "is_text"), FIELDS)
def test_every_field(place, key, is_text, monkeypatch):
    place.refused("--set", f"{key}={URL}")
    place.refused("--set", f"{key}={SIGNED}")
    if not is_text:
        place.refused("--set", f"{key}={SECRET}")
        place.refused("--set", f"{key}=canaryword")
    # In a file, and from a variable.
    monkeypatch.setenv("PLANTED", URL)
    for value in (URL, "${PLANTED}"):
        put(place.folder, key, value)
        place.refused()
    if not is_text:
        monkeypatch.setenv("PLANTED", "canaryword")
        place.refused()
        put(place.folder, key, SECRET)
        place.refused()


def put(folder: Path, key: str, value: str) -> None:
    """Write a dataset and a cluster file, one field of which has that value."""
    dataset: dict[str, Any] = {"source": {"url": "source"}}
    cluster: dict[str, Any] = {"storage": {"url": "local"}}
    *path, last = key.removeprefix("cluster.").split(".")
    inner = cluster if key.startswith("cluster.") else dataset
    for part in path:
        inner = inner.setdefault(part, {})
    inner[last] = value
    (folder / "configs/datasets/files.yaml").write_text(json.dumps(dataset))
    (folder / "configs/clusters/local.yaml").write_text(json.dumps(cluster))


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
def test_every_flag(place, arguments):
    place.refused(*arguments)


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
@pytest.mark.parametrize("side", ["source", "cluster.storage"])
def test_an_endpoint_of_the_environment(place, name, side, monkeypatch):
    monkeypatch.setenv(name, f"http://user:{SECRET}@127.0.0.1:9")
    document = place.refused("--set", f"{side}.url=s3://bucket/x")
    assert document["error"]["code"] == "config.secret"
    assert name in document["error"]["where"]
    # A profile keeps the environment's endpoint out of the config, but not out of use.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "canary")
    with pytest.raises(ConfigError) as caught:
        open_store("s3://bucket/x").get("a")
    assert (caught.value.code, "canary" in str(caught.value)) == ("config.secret", False)


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
def test_secrets_of_a_template(place, template):
    path = place.folder / "configs/experiments/default.yaml"
    variables = f"environment:\n  environment_variables: [TOKEN={SECRET}, {SECRET}]\n"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("entrypoint")]
    path.write_text("\n".join(kept) + "\n" + variables + template)
    place.refused()


def test_a_run_leaves_no_secret_of_a_profile(place, rclone_server, monkeypatch):
    """The keys of a profile and of the environment go to the server, and nowhere else."""
    server = rclone_server
    server.create_bucket("canaries")
    where = reach(server)
    write("s3://canaries/source", images(), **where)
    keys = f"aws_access_key_id = {server.access_key}\naws_secret_access_key = {server.secret_key}"
    (place.folder / "aws").write_text(f"[profile planted]\n{keys}\nrole_note = {SECRET}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(place.folder / "aws"))
    monkeypatch.setenv("AWS_SESSION_TOKEN", SECRET)
    settings = [
        f"{side}.{key}={value}"
        for side in ("source", "cluster.storage")
        for key, value in {**where, "profile": "planted"}.items()
    ]
    settings += ["source.url=s3://canaries/source", "cluster.storage.url=s3://canaries/local"]
    asked = load_settings("files", config_dir=Path("configs"), settings=settings)
    document = prepare(asked)
    assert document["status"] == "built"
    texts = [repr(document).encode(), *stored("s3://canaries/local", where)]
    texts += [Path(config).read_bytes() for config in document["configs"]]
    assert len(texts) > 10
    for text in texts:
        for secret in (server.secret_key, server.access_key, "canary"):
            assert secret.encode() not in text.replace(b"s3://canaries", b"").replace(
                b"bucket: canaries", b""
            ), text[:200]


def stored(url: str, where: Mapping[str, str]) -> list[bytes]:
    with_keys = listing(url, **where)
    store = open_store(url, **where)
    return [bytes(store.get(key)) for key in with_keys]
