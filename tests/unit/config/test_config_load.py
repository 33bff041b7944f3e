"""Loading dataset and cluster files: every mistake at once, with file, line and dotted key.

The messages are in tests/golden/messages.md.
"""

from pathlib import Path

import pytest

from larder.config.load import load_cluster, load_dataset, load_template, names
from larder.config.models.dataset import Dataset
from larder.errors import ConfigError, LarderError, ProblemsError
from tests.support.errors import error_of, larder_error

SOURCE = "source:\n  url: ./here\n"
MASKS = SOURCE + "validate: decode\nshards: {images: {masks: [seg]}}\ndecoding: {png: mask}\n"
HERE = "configs/datasets/x.yaml"
Problem = tuple[str, str, str]


@pytest.fixture(autouse=True)
def config_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("datasets", "clusters", "experiments/deep"):
        Path("configs", folder).mkdir(parents=True)
    return Path("configs")


def load(text: str, *settings: str, **environ: str) -> Dataset:
    Path(HERE).write_text(text)
    return load_dataset(Path("configs"), "x", settings, environ)


def refused(text: str, *settings: str, **environ: str) -> LarderError:
    return error_of(load, text, *settings, **environ)


def problems_of(error: LarderError) -> list[Problem]:
    return [
        (each.code.removeprefix("config."), each.where, each.message.partition(": ")[0])
        for each in ProblemsError.of(error)
    ]


def test_the_name_is_that_of_the_file():
    assert load(SOURCE).name == "x"
    assert load("name: x\n" + SOURCE).name == "x"
    assert problems_of(refused(SOURCE + "name: y\n")) == [("invalid_value", f"{HERE}:3", "name")]


def test_a_deny_list_is_excluded_by_keys_and_globs():
    lines = "# of November\n\n  people/0042  \nodd/[1].jpg\nraw/**\n"
    Path("configs/datasets/omit.txt").write_text(lines)
    text = "source: {url: ./here, exclude: ['*.tmp']}\nomit: omit.txt\n"
    assert load(text).source.exclude == (
        *("*.tmp", "people/0042", "people/0042.*", "odd/[1].jpg", "odd/[[]1].jpg"),
        *("odd/[[]1].jpg.*", "raw/**", "raw/[*][*]", "raw/[*][*].*"),
    )
    assert load(text, "omit=").source.exclude == ("*.tmp",)


def test_a_deny_list_names_rows_and_joined_samples():
    Path("configs/datasets/omit.txt").write_text("a/[1]\n")
    text = "source: {url: ./here, rows: {exclude: 'x/*'}}\nomit: omit.txt\n"
    dataset = load(text + "samples: {join: {i: 'i/{id}.jpg', m: 'm/{id}/*.png'}}\n")
    lines = ("a/[1]", "a/[[]1]", "a/[[]1].*", "i/a/[[]1].jpg", "m/a/[[]1]/*.png")
    assert dataset.source.exclude == lines
    assert dataset.source.rows.exclude == ("x/*", *lines)
    assert load(text + "samples: {join: ['{id}.jpg']}\n").source.exclude[3:] == ("a/[[]1].jpg",)


@pytest.mark.parametrize(
    ("data", "code", "where"),
    [
        (None, "config.unreadable", ""),
        (b"\xff", "config.unreadable", ""),
        (b"a\n[b\n", "config.invalid_value", ":2"),
        *[(line, "config.invalid_value", ":1") for line in (b"/a/b", b"./a/b", b"a/b/\r\n")],
    ],
)
def test_a_deny_list_that_cannot_be_read_is_refused(data, code, where):
    if data is not None:
        Path("configs/datasets/omit.txt").write_bytes(data)
    with larder_error(code, f"configs/datasets/omit.txt{where}") as caught:
        load(SOURCE + "omit: omit.txt\n")
    hints = {None: "put a file there", b"\xff": "save it as UTF-8"}
    assert hints.get(data, "") in caught.value.hint


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        (SOURCE + f"splits: {{train: '{'{' * 5000}'}}\n", 3, "splits.train"),
        (SOURCE + "splits: [train]\n", 3, "splits"),
        (SOURCE + "splits: {}\n", 3, "splits"),
        (SOURCE + "splits: {by: at, seed: 1, fractions: {a: 1}}", 3, "splits.by"),
        (SOURCE + "labels:\n  from: pattern\n", 4, "labels.from"),
        (SOURCE + "labels:\n  from: folder\n  column: x\n", 5, "labels.column"),
        (SOURCE + "shards:\n  bytes: 5\n  samples_per_shard: 5\n", 5, "shards.samples"),
        (SOURCE + "samples: {join: []}\n", 3, "samples.join"),
        (MASKS, 5, "decoding.png"),
        ("source:\n  url: a\n  inventory:\n    url: s3://bucket/x\n", 4, "source.inv"),
        ("source: {url: a, rows: {format: text, key: x}}\n", 1, "source.rows.key"),
        ("source: {url: a, include: []}\n", 1, "source.include"),
    ],
)
def test_a_mistake_has_its_line_and_its_key(text, line, key):
    ((code, where, message),) = problems_of(refused(text))
    assert (code, where) == ("invalid_value", f"{HERE}:{line}")
    assert message.startswith(key)


def test_a_setting_without_a_value_leaves_a_field_out():
    """That of two fields which cannot be combined could not be."""
    text = SOURCE + "shards:\n  bytes: 5\n"
    assert "--set shards.bytes=" in refused(text, "shards.samples_per_shard=7").hint
    shards = load(text, "shards.samples_per_shard=7", "shards.bytes=").shards
    assert (shards.samples_per_shard, shards.bytes) == (7, 150_000_000)
    assert "shards.byts" in problems_of(refused(text, "shards.byts="))[0][1]


def test_a_setting_makes_the_variable_it_replaces_unnecessary():
    assert load("source: {url: '${A}'}", "source.url=s3://bucket").source.url == "s3://bucket"
    assert load("source: {url: a, include: ['${A}']}", "source.include=*").source.include == ("*",)
    assert load("source: {url: a, exclude: '*.tmp'}").source.exclude == ("*.tmp",)
    assert load("source: {url: a, exclude: []}").source.exclude == ()
    error = refused("source: {url: '${A}'}", "source.region=r")
    assert error.code == "config.missing_variable"


def test_unknown_names_are_refused(config_dir):
    for name in ("digits", "imagenet", "files"):
        (config_dir / f"datasets/{name}.yaml").write_text(SOURCE)
    (config_dir / "datasets/Not A Name.yaml").write_text(SOURCE)
    assert names(config_dir, "datasets") == ["digits", "files", "imagenet"]
    for name in ("digit", "ImageNet", "../datasets/digits", "configs/datasets/files.yaml", ""):
        with larder_error("config.unknown_dataset", "configs/datasets"):
            load_dataset(config_dir, name)


@pytest.mark.parametrize("name", ["UP", "a b", "ü", "_x", "x" * 64])
def test_a_file_whose_name_is_not_allowed_is_to_be_renamed(config_dir, name):
    (config_dir / f"datasets/{name}.yaml").write_text(SOURCE)
    with larder_error("config.unknown_dataset", "configs/datasets") as caught:
        load_dataset(config_dir, name)
    assert caught.value.hint.startswith("rename the file: ")
    for other in ("x" * 300, f"../datasets/{name}"):
        with larder_error("config.unknown_dataset") as caught:
            load_dataset(config_dir, other)
        assert "rename" not in caught.value.hint


def test_an_unknown_cluster_and_a_missing_directory(config_dir):
    unknown, missing = (config_dir, "unknown_cluster"), (Path("elsewhere"), "unreadable")
    for name, (folder, code) in (("local", unknown), (None, unknown), ("local", missing)):
        with larder_error(f"config.{code}"):
            load_cluster(folder, name)


def test_cluster_settings_go_to_the_cluster(config_dir):
    (config_dir / "clusters/c.yaml").write_text("storage: {url: '${A}'}\ncopy: {concurrency: 4}\n")
    (config_dir / "datasets/x.yaml").write_text(SOURCE)
    settings = ["cluster.storage.url=./there", "mirror=false", "cluster.copy.memory_bytes=1 MiB"]
    cluster = load_cluster(config_dir, "c", settings, {})
    assert (cluster.storage.url, cluster.copy_.concurrency) == ("./there", 4)
    assert cluster.copy_.memory_bytes == 1024**2
    assert load_dataset(config_dir, "x", settings, {}).mirror is False
    with pytest.raises(ConfigError) as caught:
        load_cluster(config_dir, "c", ["cluster.storage.ulr=a", "cluster.copy.engin=x"], {})
    assert problems_of(caught.value) == [
        ("missing_variable", "configs/clusters/c.yaml:1", "environment variable not set"),
        ("unknown_key", "--set cluster.storage.ulr", "unknown key"),
        ("unknown_key", "--set cluster.copy.engin", "unknown key"),
    ]


def test_the_environment_is_that_of_the_process(config_dir, monkeypatch):
    (config_dir / "datasets/x.yaml").write_text("source: {url: '${LARDER_TEST_URL}'}")
    monkeypatch.setenv("LARDER_TEST_URL", "s3://bucket")
    assert load_dataset(config_dir, "x").source.url == "s3://bucket"


def test_templates(config_dir):
    (config_dir / "experiments/deep/t.yaml").write_text("lr: 1.0e-3\nentrypoint: run ${X}\n")
    (config_dir / "experiments/date.yaml").write_text("a: 2026-13-01\n")
    (config_dir / "secret.yaml").write_text("a: 1\n")
    value = load_template(config_dir, "deep/t.yaml")
    assert value == {"lr": 0.001, "entrypoint": "run ${X}"}
    for name, code in (
        ("../secret.yaml", "template"),
        ("lists.yaml", "template"),
        ("date.yaml", "invalid_yaml"),
    ):
        with larder_error(f"config.{code}"):
            load_template(config_dir, name)
