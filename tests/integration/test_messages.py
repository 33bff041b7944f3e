"""What a user reads who made a mistake: every message is in tests/golden/messages.md.

``LARDER_WRITE_GOLDEN=1`` rewrites the file. Everywhere else, tests assert codes and places.
"""

import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from larder.cli.exit import run
from larder.cli.main import dispatch
from larder.errors import CODES

GOLDEN = Path(__file__).parents[1] / "golden" / "messages.md"
HEAD = """\
# What users read who made a mistake

Written by `LARDER_WRITE_GOLDEN=1 python -m pytest tests/integration/test_messages.py`. Each section
has what is special about the input, the command, what it prints, and its exit status.
"""
PREPARE = "larder prepare --dataset d --cluster c --plan"
SOURCE = "source: {url: source}\n"
STORAGE = "storage: {url: store}\n"
HASH = "splits: {by: hash, seed: 7, fractions: {a: 1}}\n"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
EXPERIMENT = (
    "entrypoint: python3 train.py\nhyperparameters: {}\nsearcher: {name: single, metric: loss}\n"
)


@dataclass(frozen=True, slots=True)
class Case:
    """A wrong input; ``dataset`` follows a source, and None leaves a default file out."""

    title: str
    dataset: str = ""
    command: str = PREPARE
    files: dict[str, str | bytes | None] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)


def whole(title: str, dataset: str, **environ: str) -> Case:
    return Case(title, files={"configs/datasets/d.yaml": dataset}, environ=environ)


def cluster(title: str, text: str) -> Case:
    return Case(title, files={"configs/clusters/c.yaml": text})


def given(title: str, *settings: str, dataset: str = "") -> Case:
    command = PREPARE + "".join(f" --set {shlex.quote(setting)}" for setting in settings)
    return Case(title, dataset, command)


def flags(title: str, command: str, **files: str | bytes | None) -> Case:
    return Case(title, "", command, {name.replace("__", "/"): text for name, text in files.items()})


def source(title: str, dataset: str, **files: str | bytes | None) -> Case:
    """A case whose source has other files, whose names have _ for a dot."""
    default: dict[str, str | bytes | None] = {"source/a/1.txt": None, "source/b/2.txt": None}
    names = {f"source/{name.replace('__', '/').replace('_', '.')}": files[name] for name in files}
    return Case(title, dataset, files=default | names)


def template(title: str, text: str) -> Case:
    return Case(title, files={"configs/experiments/default.yaml": text})


CASES = [
    # The command
    flags("A misspelt command", "larder prepair"),
    flags("No command", "larder"),
    flags("A misspelt flag", "larder prepare --datset d"),
    flags("No dataset", "larder prepare"),
    flags("A flag without its value", "larder prepare --dataset"),
    flags("A misspelt dataset", "larder prepare --dataset digit", configs__datasets__digits="x"),
    Case("A misspelt cluster", command="larder prepare --dataset d --cluster cc"),
    Case(
        "A name that is not allowed",
        command="larder prepare --dataset UP --cluster c",
        files={"configs/datasets/UP.yaml": SOURCE},
    ),
    Case("Another directory", command="larder prepare --dataset d --config-dir elsewhere"),
    flags("A copy to nowhere", "larder copy source"),
    flags("A copy with mistakes", "larder copy ftp://x there --set copy.concurrency=true"),
    flags("A copy with a dataset's key", "larder copy a b --set shards.bytes=3"),
    flags("A copy with a cluster's key", "larder copy a b --set cluster.copy.concurrency=3"),
    flags("A copy from a user", "larder copy user:hunter2@host:/path there"),
    flags("An address with a user", "larder warm s3://user:hunter2@bucket/larder/x --to there"),
    # YAML
    whole("A tab", "source:\n\turl: source\n"),
    whole("An open list", "source: {url: source, include: [a\n"),
    whole("A star without quotes", "source: {url: source, include: **/*.png}\n"),
    whole("A tag", "source: {url: !mine source}\n"),
    whole("A key twice", SOURCE + "mirror: auto\nmirror: true\n"),
    whole("Two documents", SOURCE + "---\n" + SOURCE),
    whole("An empty file", ""),
    whole("A list", "- source\n"),
    Case("No text", files={"configs/datasets/d.yaml": b"description: caf\xe9"}),
    # Keys
    Case("A misspelt key", "mirrr: true\n"),
    whole("A misspelt key within", "source: {urll: source}\n"),
    Case("A key that looks like no other", "cache: {compression: zstd}\n"),
    Case("A key of the other file", "consumer: {kind: determined}\n"),
    Case("A misspelt key of a cluster", command=f"{PREPARE} --set cluster.storage.ulr=x"),
    cluster("A key of a mount", STORAGE + "nodes: {mounts: [{host_path: /a, contaner_path: /b}]}"),
    whole("No source", "description: nothing\n"),
    Case("Another name than the file's", "name: other\n"),
    Case(
        "Several mistakes",
        "mirrr: true\nshards:\n  bytes: many\n  shuffle_seed: true\n  size: 5\n"
        "description: '${MISSING}'\ncache: {records: '${'}\n",
        command=f"{PREPARE} --set validate.x=1 --set 'source.region=a b'",
    ),
    # Values
    Case("A size", "shards: {bytes: 1 QB}\n"),
    Case("A bound", "shards: {bytes: 0}\n"),
    Case("A misspelt choice", "cache: {records: encodd}\n"),
    Case("Another choice", "growth: {removals: remove}\n"),
    Case("A number for a string", "description: 7\n"),
    Case("A string for a number", "shards: {shuffle_seed: '7'}\n"),
    Case("A list for a value", "mirror: [true]\n"),
    Case("A value for a mapping", "cache: none\n"),
    Case("A format that there is not", "shards: {format: webdatset}\n"),
    Case("A glob", "splits: {train: 'a/{b'}\n"),
    Case("A name of a split", "splits: {'a b': '**'}\n"),
    Case("Fractions", "splits: {by: hash, seed: 7, fractions: {a: 0.4}}\n"),
    Case("Fractions without a hash", "splits: {train: 0.9, validation: 0.1}\n"),
    Case("A hash without fractions", "splits: {by: hash, seed: 7}\n"),
    Case("A pattern without a group", "labels: {pattern: '[a-z]+'}\n"),
    Case("A class twice", "labels: {classes: [cat, dog, cat]}\n"),
    Case("A join without a name", "samples: {join: ['images/*.jpg']}\n"),
    Case("A decoder's parameters", "validate: decode\ndecoding: {wav: wav rate=3}\n"),
    Case("A feature", "shards: {format: tfrecord, features: {x: jpg}}\n"),
    cluster("A release without quotes", STORAGE + "consumer: {release: 0.38}\n"),
    # Keys that disagree
    Case("A decoded cache", "cache: {records: decoded}\n"),
    Case("Decoding that is not asked for", "decoding: {wav: wav}\n"),
    Case("A label file for another split", "labels: {files: {test: x}}\n"),
    Case("A column without a table", "labels: {column: label}\n"),
    Case("Batches without a number", "shards: {format: batches}\n"),
    Case("Classes in equal parts without labels", HASH.replace("}}", "}, stratify: true}")),
    Case("Features of another format", "shards: {features: {}}\n"),
    whole("A mirror of rows", "source: {url: source, rows: {}}\nmirror: true\n"),
    # Variables and --set
    whole("A variable that is not set", "source: {url: '${PETS}'}\n"),
    whole("Several variables that are not set", "source: {url: 's3://${A}/${B}', region: '${A}'}"),
    whole("A variable that is no number", SOURCE + "shards: {bytes: '${SIZE}'}\n", SIZE="hunter2"),
    Case("A brace without a variable", "description: 'a ${ b'\n"),
    given("A setting without a value", "mirror"),
    given("A setting of another value", "shards.bytes=hunter2"),
    given("A setting below a value", "mirror.x=1"),
    given("A setting of an open list", "source.include=[hunter2"),
    # Places
    given("Another scheme", "source.url=ftp://host/x"),
    given("A scheme that lost a slash", "source.url=s3:/bucket/x"),
    given("A bucket's name", "source.url=s3://x"),
    given("A key of a bucket for a directory", "source.region=us-west-2"),
    given("A key of S3 for GCS", "source.url=gs://bucket", "source.profile=reader"),
    given("An endpoint", "source.url=s3://bucket/x", "source.endpoint=localhost:9000"),
    given("A role", "source.url=s3://bucket/x", "source.role=reader"),
    given("A block", "source.url=s3://bucket/x", "source.block=mine"),
    given(
        "A public bucket with a profile",
        "source.url=s3://bucket",
        "source.anonymous=true",
        "source.profile=a",
    ),
    given("Two credentials", "source.url=s3://bucket", "source.block=secret/a", "source.profile=b"),
    given("The storage inside of the source", "cluster.storage.url=source/store"),
    given("A file below the storage", "cluster.storage.url=configs/datasets/d.yaml/x"),
    given("A port", "source.url=s3://bucket/x", "source.endpoint=http://127.0.0.1:99999"),
    given("A home that there is not", "source.url=~no-such-user/x"),
    # Secrets
    given("Credentials in a URL", f"source.url=s3://key:{SECRET}@bucket/x"),
    given("A secret for a profile", "source.url=s3://bucket", f"source.profile={SECRET}"),
    whole("Credentials in a description", SOURCE + f"description: https://user:{SECRET}@host/x\n"),
    # The source and its samples
    given("A source that there is not", "source.url=nowhere"),
    given("A file for a directory", "source.url=configs/datasets/d.yaml"),
    given("An include that matches nothing", "source.include=*.png"),
    given("An exclude that leaves nothing", "source.include=a/*", "source.exclude=[a/*, '**']"),
    source("An empty source", "", empty__=""),
    Case("An object without a split", "splits: {train: 'a/**'}\n"),
    source("A sample in two splits", "splits: {a: '**/*.txt', b: '**'}\n", a__1_txt="", a__1_x=""),
    source("Two objects that are one part", "", a__1_jpg="", a__1_JPEG=""),
    source("An object without an extension", "", a__README=""),
    source("A sample without a part", "samples: {join: ['{id}.a', '{id}.b']}\n", x_a="1"),
    Case("A label file that there is not", "labels: {files: {train: labels.txt}}\n"),
    source(
        "A sample that the label file does not name",
        "labels: {files: {train: labels.txt}}\n",
        labels_txt="1 x\n",
        a__1_png="1",
        a__2_png="2",
    ),
    Case("A label file elsewhere", "labels: {files: {train: 's3://bucket/x'}}\n"),
    Case("A class that is not listed", "labels: {classes: [a]}\n"),
    Case(
        "An image that cannot be decoded",
        "cache: {records: encoded}\n",
        command=PREPARE.removesuffix(" --plan") + " --quiet",
        files={"source/a/1.txt": None, "source/b/2.txt": None, "source/a/3.png": b"no image"},
    ),
    # The experiment
    Case("A misspelt template", "experiment: {template: defalt.yaml}\n"),
    template("A template that is a list", "- a\n"),
    template("A template with a key twice", "name: a\nname: b\n"),
    template("A template that YAML 1.1 reads otherwise", "hyperparameters:\n  rate: 1e-3\n"),
    template(
        "A template that hides the data",
        "environment: {environment_variables: [LARDER_LOCATION=/x]}\n",
    ),
    template("A template with mistakes", EXPERIMENT + "entrypoints: x\nresources: {priority: 0}\n"),
    template("A template that sets the data", EXPERIMENT + "data: {version: 3}\n"),
    Case("A delivery that cannot be", "experiment: {delivery: bucket}\n"),
    cluster(
        "A mount of something else",
        STORAGE + "nodes: {mounts: [{host_path: /x, container_path: /y}]}\n",
    ),
    # Credentials
    Case(
        "No credentials",
        command=f"{PREPARE} --set source.url=s3://bucket/x",
        environ={"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
    ),
    given("A profile that there is not", "source.url=s3://bucket/x", "source.profile=nobody"),
]


def printed(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The section of a case; paths of this machine are replaced."""
    default: dict[str, str | bytes | None] = {
        "configs/datasets/d.yaml": SOURCE + case.dataset,
        "configs/clusters/c.yaml": STORAGE,
        "configs/experiments/default.yaml": EXPERIMENT,
        "source/a/1.txt": "1",
        "source/b/2.txt": "2",
    }
    for name, content in (default | case.files).items():
        if content is not None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                path.write_bytes(content.encode() if isinstance(content, str) else content)
    status = run(lambda: dispatch(shlex.split(case.command)[1:]))
    told = re.findall(r"^(?:error|failed|warning)\[.*", capsys.readouterr().err, re.MULTILINE)
    lines = [f"## {case.title}\n\n```"]
    for name, content in {**case.files, "d.yaml": case.dataset}.items():
        if isinstance(content, str) and content and not name.startswith("source/"):
            lines += [f"# {Path(name).name}", content.rstrip()]
    lines += [f"{name}={value}" for name, value in case.environ.items()]
    lines += [f"$ {case.command}", *told, f"[{status}]", "```"]
    return re.sub(f"(?:file://)?{re.escape(str(folder))}", "HERE", "\n".join(lines))


def sections() -> dict[str, str]:
    text = GOLDEN.read_text(encoding="utf-8") if GOLDEN.exists() else ""
    return {part.partition("\n")[0]: f"## {part}" for part in re.split("(?m)^## ", text)[1:]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_the_message_is_that_of_the_golden_file(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        if case.environ.get(name) == "":
            monkeypatch.delenv(name, raising=False)
    for name, value in case.environ.items():
        if value:
            monkeypatch.setenv(name, value)
    text = printed(case, tmp_path, capsys)
    codes = re.findall(r"^error\[(.*?)\]: (.*)$", text, re.MULTILINE)
    assert codes, text
    assert {code for code, _ in codes} <= CODES.keys()
    assert "run.internal" not in text
    assert "Traceback" not in text
    output = text.rpartition("\n$ ")[2].partition("\n")[2]
    assert "hunter2" not in output
    assert SECRET not in output
    assert not list(tmp_path.rglob("version.json"))
    assert "--plan" not in case.command or not (tmp_path / "store").exists()
    if os.environ.get("LARDER_WRITE_GOLDEN"):
        written = {**sections(), case.title: text}
        ordered = [written[each.title] for each in CASES if each.title in written]
        GOLDEN.write_text(
            "\n\n".join([HEAD.strip(), *map(str.strip, ordered)]) + "\n", encoding="utf-8"
        )
    assert sections()[case.title].strip() == text.strip()


def test_every_section_has_a_case():
    assert list(sections()) == [case.title for case in CASES]
