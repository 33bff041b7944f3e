"""Loading dataset and cluster files: one error, with file, line and dotted key."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from larder.config.load import load_cluster, load_dataset, load_template, names
from larder.config.models import Dataset
from larder.errors import ConfigError, ProblemsError

SOURCE = "source:\n  url: ./here\n"
Refuse = Callable[..., ConfigError]


@pytest.fixture
def config_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("datasets", "clusters", "experiments/deep"):
        Path("configs", folder).mkdir(parents=True)
    return Path("configs")


@pytest.fixture
def load(config_dir: Path) -> Callable[..., Dataset]:
    def load(text: str, *settings: str, **environ: str) -> Dataset:
        (config_dir / "datasets/x.yaml").write_text(text)
        return load_dataset(config_dir, "x", settings, environ)

    return load


@pytest.fixture
def refused(load: Callable[..., Dataset]) -> Refuse:
    def refused(text: str, *settings: str, **environ: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            load(text, *settings, **environ)
        assert "\n" not in str(caught.value)
        return caught.value

    return refused


def test_the_name_is_that_of_the_file(load: Callable[..., Dataset], refused: Refuse) -> None:
    assert load(SOURCE).name == "x"
    assert load("name: x\n" + SOURCE).name == "x"
    error = refused(SOURCE + "name: y\n")
    assert error.where == "configs/datasets/x.yaml:3"
    assert error.message == "name: expected x, the name of the file, not 'y'"


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        (
            SOURCE + "mirrr: true\n",
            "config.unknown_key",
            "configs/datasets/x.yaml:3: unknown key mirrr; did you mean mirror?",
        ),
        (
            "source:\n  urll: a\n",
            "config.unknown_key",
            "configs/datasets/x.yaml:2: unknown key source.urll (and 1 more); "
            "did you mean source.url?",
        ),
        (
            SOURCE + "cache: {compression: zstd}\n",
            "config.unknown_key",
            "configs/datasets/x.yaml:3: unknown key cache.compression; "
            "the known keys are cache.records, cache.same_size",
        ),
        (
            SOURCE + "labels: {source: folder}\n",
            "config.unknown_key",
            "configs/datasets/x.yaml:3: unknown key labels.source; "
            "the known keys are labels.from, labels.pattern, labels.column, labels.files, "
            "labels.classes",
        ),
        (
            SOURCE + "validate_: none\n",
            "config.unknown_key",
            "configs/datasets/x.yaml:3: unknown key validate_; did you mean validate?",
        ),
        (
            "description: nothing\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:1: source is missing",
        ),
        (
            "mirror: true\nsource:\n  region: a\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:2: source.url is missing",
        ),
        (
            SOURCE + "shards:\n  bytes: 0\n  shuffle_seed: 1.5\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:4: shards.bytes: expected 1 or more, not 0 (and 1 more)",
        ),
        (
            SOURCE + "shards: {bytes: 1 QB}\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:3: shards.bytes: "
            "expected a size such as 150 MB or 128 MiB, not '1 QB'",
        ),
        (
            SOURCE + "cache: {records: encodd}\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:3: cache.records: "
            "expected encoded or decoded, not 'encodd'; did you mean encoded?",
        ),
        (
            SOURCE + "cache: none\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:3: cache: expected a mapping, not 'none'; "
            "omit the key, or write null",
        ),
        (
            SOURCE + "description: 7\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:3: description: expected a string, not 7; put it in quotes",
        ),
        (
            SOURCE + "mirror: [true]\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:3: mirror: expected auto, true or false, not a list",
        ),
        (
            "source: {url: ''}\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:1: source.url: expected a non-empty string",
        ),
        (
            "source: {url: s3://key:secret@bucket}\n",
            "config.secret",
            "configs/datasets/x.yaml:1: source.url: a URL must not contain credentials; "
            "use the AWS chain or a profile",
        ),
        (
            SOURCE + "splits:\n  train: 5\n  test: x\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:4: splits.train: expected a list, not 5",
        ),
        (
            SOURCE + "splits:\n  'a b': x\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:4: splits.a b: "
            "expected a name of letters, digits, - and _, 63 at most, not 'a b'",
        ),
        (
            SOURCE + "splits: {by: hash, seed: 7}\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:3: splits.fractions is missing",
        ),
        (
            SOURCE + "splits: {by: hash, seed: 7, fractions: {a: 0.4}}\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:3: splits.fractions: "
            "fractions must be above 0 and add up to 1",
        ),
        (
            SOURCE + "splits: [train]\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:3: splits: expected a mapping, not a list",
        ),
        (
            SOURCE + "labels:\n  files:\n    test: a\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:4: labels.files: there is no split 'test'",
        ),
        (
            SOURCE + "labels: {files: {test: a, b: a, train: a, c: a}}\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:3: labels.files: there is no split 'test', 'b', 'c'",
        ),
        (
            SOURCE + "validate: header\ncache:\n  records: decoded\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:5: cache.records: decoded needs images that can be decoded; "
            "set validate: decode, or cache.records: encoded",
        ),
        (
            SOURCE + "validate: decode\ndecoding:\n  wav: wav rate=3\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:5: decoding.wav: only functions of your own have parameters",
        ),
        (
            SOURCE + "decoding: {wav: wav}\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:3: decoding: parts are decoded while they are checked; set"
            " validate: decode, or remove decoding",
        ),
        (
            SOURCE + "growth: {removals: remove}\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:3: growth.removals: expected repack or omit, not 'remove'",
        ),
        (
            "",
            "config.invalid_value",
            "configs/datasets/x.yaml:1: the file is empty; "
            "describe a dataset in lines of key: value",
        ),
        (
            "- a\n",
            "config.invalid_value",
            "configs/datasets/x.yaml:1: the file is not a mapping; "
            "describe a dataset in lines of key: value",
        ),
    ],
)
def test_errors_in_plain_words(refused: Refuse, text: str, code: str, line: str) -> None:
    error = refused(text)
    assert str(error) == line
    assert error.code == code


def test_all_missing_variables_are_named_in_one_error(refused: Refuse) -> None:
    text = "source:\n  url: ${A}/${B}\n  region: ${C:-r}\n  profile: ${D}\ndescription: ${A}\n"
    error = refused(text, D="d")
    assert error.code == "config.missing_variable"
    assert str(error) == (
        "configs/datasets/x.yaml:2: environment variables A and B are not set; "
        "export them, or pass --set source.url=VALUE"
    )


def test_a_setting_makes_the_variable_it_replaces_unnecessary(
    load: Callable[..., Dataset], refused: Refuse
) -> None:
    assert load("source: {url: '${A}'}", "source.url=s3://bucket").source.url == "s3://bucket"
    assert load("source: {url: a, include: ['${A}']}", "source.include=*").source.include == ("*",)
    assert load("source: {url: a, exclude: '*.tmp'}").source.exclude == ("*.tmp",)
    assert load("source: {url: a, exclude: []}").source.exclude == ()
    said = refused("source: {url: a, include: []}").message
    assert said == "source.include: expected 1 or more entries, not an empty list"
    assert "A is not set" in refused("source: {url: '${A}'}", "source.region=r").message


@pytest.mark.parametrize(
    "text",
    [
        "source: {url: a}\nshards: {bytes: '${A}'}",
        "source: {url: a}\nshards: {shuffle_seed: '${A}'}",
        "source: {url: a}\ncache: {records: '${A}'}",
        "source: {url: 's3://${A}@bucket'}",
        "source: {url: a}\nsplits: {by: hash, seed: 7, fractions: {a: '${A}'}}",
        "source: {url: a}\nsplits: {by: hash, seed: 7, fractions: {a: 1}, group: '${A}('}",
    ],
)
def test_values_of_variables_are_not_repeated(refused: Refuse, text: str) -> None:
    error = refused(text, A="hunter2")
    assert "hunter2" not in str(error)
    assert error.where.startswith("configs/datasets/x.yaml:")


def test_a_variable_is_named_where_its_value_is_refused(refused: Refuse) -> None:
    error = refused("source: {url: a}\nshards: {shuffle_seed: '${A}'}", A="hunter2")
    assert error.message == "shards.shuffle_seed: expected a whole number, not the value of A"


def test_unknown_names_get_the_nearest(config_dir: Path) -> None:
    for name in ("digits", "imagenet", "files"):
        (config_dir / f"datasets/{name}.yaml").write_text(SOURCE)
    (config_dir / "datasets/Not A Name.yaml").write_text(SOURCE)
    assert names(config_dir, "datasets") == ["digits", "files", "imagenet"]
    for name, hint in (
        ("digit", "did you mean digits?"),
        ("ImageNet", "did you mean imagenet?"),
        ("../datasets/digits", "did you mean digits?"),
        ("configs/datasets/files.yaml", "did you mean files?"),
        ("zzz", "the datasets are digits, files, imagenet"),
        ("", "the datasets are digits, files, imagenet"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_dataset(config_dir, name)
        assert caught.value.code == "config.unknown_dataset"
        assert caught.value.where == "configs/datasets"
        assert caught.value.hint == hint


def test_an_unknown_cluster_and_a_missing_directory(config_dir: Path) -> None:
    with pytest.raises(ConfigError, match="there are no clusters") as caught:
        load_cluster(config_dir, "local")
    assert caught.value.code == "config.unknown_cluster"
    with pytest.raises(ConfigError, match="--config-dir") as caught:
        load_cluster(Path("elsewhere"), "local")
    assert caught.value.code == "config.unreadable"


def test_cluster_settings_go_to_the_cluster(config_dir: Path) -> None:
    (config_dir / "clusters/c.yaml").write_text("storage: {url: '${A}'}\ncopy: {concurrency: 4}\n")
    (config_dir / "datasets/x.yaml").write_text(SOURCE)
    settings = ["cluster.storage.url=./there", "mirror=false", "cluster.copy.memory_bytes=1 MiB"]
    cluster = load_cluster(config_dir, "c", settings, {})
    assert (cluster.storage.url, cluster.copy_.concurrency) == ("./there", 4)
    assert cluster.copy_.memory_bytes == 1024**2
    assert load_dataset(config_dir, "x", settings, {}).mirror is False
    with pytest.raises(ConfigError) as caught:
        load_cluster(config_dir, "c", ["cluster.storage.ulr=a", "cluster.storage.url=b"], {})
    assert str(caught.value) == (
        "--set cluster.storage.ulr: unknown key cluster.storage.ulr; "
        "did you mean cluster.storage.url?"
    )
    with pytest.raises(ConfigError, match=r"--set cluster\.storage\.url=VALUE"):
        load_cluster(config_dir, "c", (), {})


def test_mounts_are_named_by_their_index(config_dir: Path) -> None:
    text = "storage: {url: a}\nnodes:\n  mounts:\n  - host_path: /a\n    containr_path: /b\n"
    (config_dir / "clusters/c.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_cluster(config_dir, "c", (), {})
    assert str(caught.value) == (
        "configs/clusters/c.yaml:5: unknown key nodes.mounts[0].containr_path (and 1 more); "
        "did you mean nodes.mounts[0].container_path or nodes.mounts[0].host_path?"
    )


def test_the_environment_is_that_of_the_process(
    config_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config_dir / "datasets/x.yaml").write_text("source: {url: '${LARDER_TEST_URL}'}")
    monkeypatch.setenv("LARDER_TEST_URL", "s3://bucket")
    assert load_dataset(config_dir, "x").source.url == "s3://bucket"


def test_templates(config_dir: Path) -> None:
    (config_dir / "experiments/deep/t.yaml").write_text("lr: 1e-3\nentrypoint: run ${X}\n")
    (config_dir / "experiments/list.yaml").write_text("- a\n")
    (config_dir / "secret.yaml").write_text("a: 1\n")
    value = load_template(config_dir, "deep/t.yaml")
    assert value == {"lr": 0.001, "entrypoint": "run ${X}"}
    for name, part in (
        ("../secret.yaml", "no template"),
        ("lists.yaml", "did you mean list.yaml"),
        ("list.yaml", "expected a mapping"),
    ):
        with pytest.raises(ConfigError, match=part) as caught:
            load_template(config_dir, name)
        assert caught.value.code == "config.template"


def problems_of(error: ConfigError) -> list[str]:
    return [str(problem) for problem in ProblemsError.of(error)]


def test_all_mistakes_of_a_file_are_listed(refused: Refuse) -> None:
    text = (
        "name: y\n"
        "source: {url: 's3://${MISSING}/x', endpoint: 'localhost:9000'}\n"
        "mirrr: true\n"
        "shards:\n  bytes: many\n  shuffle_seed: true\n  size: 5\n"
        "cache: {records: '${'}\n"
        "description: '${ALSO}'\n"
    )
    error = refused(text, "validate.x.y=1", "source.region=a b")
    where = "configs/datasets/x.yaml"
    assert problems_of(error) == [
        f"{where}:2: environment variables MISSING and ALSO are not set; "
        "export them, or pass --set source.url=VALUE",
        f"{where}:8: cache.records: '${{' needs a variable, as in ${{NAME}} or "
        "${NAME:-default}; write $$ for a dollar sign",
        f"{where}:3: unknown key mirrr; did you mean mirror?",
        f"{where}:7: unknown key shards.size; "
        "the known keys are shards.format, shards.bytes, shards.count_min, "
        "shards.samples_per_shard, shards.shuffle_seed, shards.images, shards.features",
        "--set source.region: expected a region such as us-west-2",
        "--set validate.x.y: validate: expected none, header or decode, not a mapping",
        f"{where}:1: name: expected x, the name of the file, not 'y'; "
        "rename one of the two, or omit name",
        f"{where}:2: source.endpoint: the endpoint has no http:// or https:// in front; "
        "write http://HOST:PORT or https://HOST",
        f"{where}:5: shards.bytes: expected a size such as 150 MB or 128 MiB, not 'many'",
        f"{where}:6: shards.shuffle_seed: expected a whole number, not true",
    ]
    assert str(error).startswith(f"{where}:2: environment variables MISSING and ALSO are not set ")
    assert "(and 9 more)" in str(error)
    assert error.code == "config.missing_variable"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "source:\n  url: ./here\n  include: '**/*.{jpg'\n",
            "3: source.include: invalid glob: unclosed {; write [{] for the character",
        ),
        (
            "source:\n  url: ./here\n  exclude: ['*.tmp', '[z-a]']\n",
            "3: source.exclude[1]: invalid glob: a range in [] is reversed",
        ),
        (
            SOURCE + "splits:\n  train: 'a/**'\n  test: ['b/[*']\n",
            "5: splits.test[0]: invalid glob: unclosed [; write [[] for the character",
        ),
        (
            SOURCE + f"splits: {{train: '{'{' * 5000}'}}\n",
            "3: splits.train: invalid glob: nested too deeply",
        ),
        (
            SOURCE + "labels: {classes: [cat, dog, cat]}\n",
            "3: labels.classes: duplicate class: 'cat'",
        ),
        (
            "source:\n  url: s3://x\n",
            "2: source.url: invalid bucket name 'x'; "
            "write s3://BUCKET/PREFIX, where BUCKET has 3 to 63 letters, digits, . - and _",
        ),
        (
            SOURCE + "description: see https://user:pw@host/x\n",
            "3: description: must not contain credentials; remove them",
        ),
    ],
)
def test_mistakes_that_would_only_fail_a_run_are_reported_with_their_line(
    text: str, line: str, refused: Refuse
) -> None:
    assert str(refused(text)) == f"configs/datasets/x.yaml:{line}"


def test_a_setting_is_named_once_and_as_it_was_given(config_dir: Path, refused: Refuse) -> None:
    error = refused(SOURCE, "source.include=**/*.{jpg", "labels.classes=[a, a]", "name=z")
    assert problems_of(error) == [
        "--set source.include: invalid glob: unclosed {; write [{] for the character",
        "--set labels.classes: duplicate class",
        "--set name: expected x, the name of the file; rename one of the two, or omit name",
    ]
    for setting in ("labels={files: {test: a}}", "labels.files={test: a}"):
        name = setting.partition("=")[0]
        message = f"--set {name}: {'labels.files: ' * (name == 'labels')}there is no split 'test'"
        assert str(refused(SOURCE, setting)) == message
    for setting in ("cache={records: decoded}", "cache.records=decoded"):
        name = setting.partition("=")[0]
        assert str(refused(SOURCE, setting)).startswith(f"--set {name}: ")
    (config_dir / "clusters/c.yaml").write_text("storage: {url: ./there}")
    with pytest.raises(ConfigError) as caught:
        load_cluster(config_dir, "c", ["cluster.name=z", "cluster.storage.url=s3://x"])
    assert problems_of(caught.value) == [
        "--set cluster.storage.url: invalid bucket name 'x'; "
        "write s3://BUCKET/PREFIX, where BUCKET has 3 to 63 letters, digits, . - and _",
        "--set cluster.name: expected c, the name of the file; rename one of the two, or omit name",
    ]


def test_all_wrong_settings_are_listed(refused: Refuse) -> None:
    error = refused(SOURCE, "a", "=1", "source.url.x=1", "splits.b=1")
    assert [problem.code for problem in ProblemsError.of(error)] == ["config.invalid_setting"] * 2
    error = refused(SOURCE, "source.url.x=1", "mirror.y=1", "shards.bytes=-1")
    assert problems_of(error) == [
        "--set source.url.x: source.url is a single value and has no keys; "
        "set source.url as a whole",
        "--set mirror.y: mirror: expected auto, true or false, not a mapping",
        "--set shards.bytes: expected 1 or more, not -1",
    ]


@pytest.mark.parametrize(
    "splits",
    [
        "{train: 0.9, validation: 0.1}",
        "{train: 80, test: 20}",
        "{hash: 3}",
        "{train: .nan, val: .inf}",
    ],
)
def test_fractions_where_globs_belong_name_the_seeded_hash(
    refused: Refuse, load: Callable[..., Dataset], splits: str
) -> None:
    hint = "{by: hash, seed: 7, fractions: {train: 0.9, validation: 0.1}}"
    assert str(refused(SOURCE + f"splits: {splits}\n")) == (
        "configs/datasets/x.yaml:3: splits: numbers are fractions, which need a seed; "
        f"write splits: {hint}"
    )
    load(SOURCE + f"splits: {hint}\n")


def test_splits_may_have_the_names_by_seed_and_fractions(load: Callable[..., Dataset]) -> None:
    splits = load(SOURCE + "splits: {by: h, seed: 'a/**', fractions: [b], train: c}\n").splits
    assert splits == {"by": ("h",), "seed": ("a/**",), "fractions": ("b",), "train": ("c",)}


@pytest.mark.parametrize(
    ("text", "settings", "line"),
    [
        ("shards: {size: 1}", (), "unknown key shards.size; the known keys are shards.format, "),
        ("shards: {bites: 1}", (), "unknown key shards.bites; did you mean shards.bytes?"),
        ("bytes: 1 MB", (), "unknown key bytes; did you mean shards.bytes?"),
        ("records: decoded", (), "unknown key records; did you mean cache.records?"),
        ("consumer: {kind: x}", (), "consumer; consumer belongs in the cluster file"),
        ("", ["consumer.kind=x"], "key consumer.kind; did you mean cluster.consumer.kind?"),
        ("", ["shards.size=1"], "--set shards.size: unknown key shards.size; the known keys are"),
        ("", ["concurrency=1"], "concurrency; did you mean cluster.copy.concurrency?"),
        ("", ["cache={record: x}"], "unknown key cache.record; did you mean cache.records?"),
        ("", ["storage.url=x"], "unknown key storage.url; did you mean cluster.storage.url?"),
    ],
)
def test_unknown_keys_have_their_full_path(
    refused: Refuse, text: str, settings: list[str], line: str
) -> None:
    assert line in str(refused(f"{SOURCE}{text}\n", *settings))


def test_the_keys_of_a_cluster_by_set_have_cluster_in_front(config_dir: Path) -> None:
    (config_dir / "clusters/c.yaml").write_text("storage: {url: a}\nconsumer: {knd: x}\n")
    with pytest.raises(ConfigError) as caught:
        load_cluster(config_dir, "c", ["cluster.consumer.kinds=x", "cluster.copy.engin=x"], {})
    assert problems_of(caught.value) == [
        "--set cluster.consumer.kinds: unknown key cluster.consumer.kinds; "
        "did you mean cluster.consumer.kind?",
        "--set cluster.copy.engin: unknown key cluster.copy.engin; "
        "did you mean cluster.copy.engine?",
        "configs/clusters/c.yaml:2: unknown key consumer.knd; did you mean consumer.kind?",
    ]


def test_values_given_by_set_are_not_repeated(refused: Refuse) -> None:
    for key in (
        "shards.bytes",
        "shards.shuffle_seed",
        "mirror",
        "cache.records",
        "name",
        "splits.x",
    ):
        error = refused(SOURCE, f"{key}=hunter2" if key != "splits.x" else "splits.x=[[hunter2]]")
        assert "hunter2" not in str(error)
    assert "not 'many'" in str(refused(SOURCE + "shards: {bytes: many}\n"))
    assert "AKIA" not in str(refused(SOURCE + "shards: {bytes: AKIAIOSFODNN7EXAMPLE}\n"))


def test_quotes_for_a_string_by_set_survive_the_shell(refused: Refuse) -> None:
    error = refused(SOURCE, "description=7")
    assert error.hint == "add quotes: --set 'description=\"7\"'"


def test_errors_with_problems_can_be_pickled(refused: Refuse) -> None:
    error = refused("source: {urll: a}\nmirror: 1\n")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), problems_of(again)) == (str(error), problems_of(error))
    assert len(problems_of(again)) == 3


def test_another_rule_than_hash_is_refused_as_such(refused: Refuse) -> None:
    splits = "splits: {by: random, seed: 1, fractions: {train: 1.0}}\n"
    assert refused(SOURCE + splits).message == "splits.by: expected hash, not 'random'"
