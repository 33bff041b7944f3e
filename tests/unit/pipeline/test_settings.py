import pickle
from pathlib import Path

import pytest

from larder.config.urls import check_overlap
from larder.errors import ProblemsError
from larder.pipeline.settings import Settings, load_settings
from larder.shards.formats import FORMATS
from tests.support.errors import larder_error

CONFIGS = Path(__file__).parents[3] / "configs"


def loaded(*settings: str, **environ: str) -> Settings:
    """Of the dataset ``files`` on the local cluster."""
    return load_settings("files", config_dir=CONFIGS, settings=settings, environ=environ)


def test_a_source_that_is_not_read_needs_no_variable():
    """Whatever else is said of it: region, endpoint, a report."""
    settings = ["source.region=us-east-1", "source.inventory.url=s3://reports/x"]
    environ = {"LARDER_STORAGE": "s3://bucket/data"}
    for arguments in (("imagenet", "aws-us-west-2"), ("files",)):
        asked = load_settings(
            *arguments, config_dir=CONFIGS, settings=settings, environ=environ, reads_source=False
        )
        assert asked.dataset.name == arguments[0]
        with larder_error("config.missing_variable"):
            load_settings(*arguments, config_dir=CONFIGS, environ=environ)
    empty = {"LARDER_SOURCE": ""}
    load_settings("files", config_dir=CONFIGS, environ=empty, reads_source=False)
    chosen = ["source.url=s3://bucket/x"]
    asked = load_settings(
        "files", config_dir=CONFIGS, settings=chosen, environ={}, reads_source=False
    )
    assert asked.dataset.source.url == "s3://bucket/x"


def test_the_output_is_the_folder_that_is_written_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environ = {"LARDER_SOURCE": "/x"}
    asked = load_settings(
        "files", config_dir=CONFIGS, output=Path("no/../x/"), environ=environ, reads_source=False
    )
    assert asked.output == tmp_path / "x"


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_a_server_named_by_the_environment_is_known(name):
    environ = {
        "IMAGENET_SOURCE": "s3://bucket/data",
        "IMAGENET_SOURCE_ENDPOINT": "http://127.0.0.1:9000",
        "LARDER_STORAGE": "s3://bucket/data/local",
        name: "http://127.0.0.1:9000",
    }
    asked = load_settings("imagenet", "aws-us-west-2", config_dir=CONFIGS, environ=environ)
    storage = asked.cluster.storage
    assert storage.access.endpoint == "http://127.0.0.1:9000"
    with larder_error("config.overlap"):
        check_overlap(
            asked.dataset.source.url,
            storage.url,
            source_endpoint=asked.dataset.source.access.endpoint,
            storage_endpoint=storage.access.endpoint,
        )


@pytest.mark.parametrize("value", ["http://127.0.0.1:9000", "127.0.0.1:9000"])
def test_an_emulator_of_gcs_is_known(value):
    settings = ["source.url=gs://bucket/x", "cluster.storage.url=s3://bucket/x"]
    asked = loaded(*settings, STORAGE_EMULATOR_HOST=value)
    assert asked.dataset.source.access.endpoint == "http://127.0.0.1:9000"
    assert asked.cluster.storage.access.endpoint is None


def test_the_url_of_a_report_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = ["source.url=s3://bucket/x", "source.inventory.url=list.csv"]
    report = loaded(*settings).dataset.source.inventory
    assert report.url == str(tmp_path / "list.csv")
    with larder_error("config.path", "source.inventory.url"):
        loaded(*settings, "source.inventory.url=~no-such-user/x")


def test_the_mistakes_of_both_files_are_listed_at_once():
    settings = ["mirrr=1", "cluster.copy.concurrency=true", "shards.bytes=-5", "cluster.runer=1"]
    with pytest.raises(ProblemsError) as caught:
        loaded(*settings)
    assert [(problem.code, problem.where) for problem in caught.value.problems] == [
        ("config.missing_variable", f"{CONFIGS}/datasets/files.yaml:13"),
        ("config.unknown_key", "--set mirrr"),
        ("config.invalid_value", "--set shards.bytes"),
        ("config.unknown_key", "--set cluster.runer"),
        ("config.invalid_value", "--set cluster.copy.concurrency"),
    ]
    again = pickle.loads(pickle.dumps(caught.value))
    assert list(map(str, again.problems)) == list(map(str, caught.value.problems))
    with pytest.raises(ProblemsError) as caught:
        load_settings("filess", "lokal", config_dir=CONFIGS, environ={})
    assert [problem.code for problem in caught.value.problems] == [
        "config.unknown_dataset",
        "config.unknown_cluster",
    ]


def test_a_missing_home_directory():
    for key in ("source.url", "cluster.storage.url"):
        with larder_error("config.path", key):
            loaded("source.url=x", f"{key}=~no-such-user/x")


def test_schemes_are_compared_in_lower_case():
    asked = loaded("source.url=S3://bucket/A", AWS_ENDPOINT_URL="http://127.0.0.1:9000")
    assert asked.dataset.source.url == "s3://bucket/A"
    assert asked.dataset.source.access.endpoint == "http://127.0.0.1:9000"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        *((url, "config.path") for url in ("s3://bucket/x", "gs://bucket/x", "file:///dir")),
        ("https://user:hunter2@host/x", "config.secret"),
    ],
)
@pytest.mark.parametrize("flag", ["config_dir", "output"])
def test_a_url_is_not_a_directory(flag, url, code):
    given = {"config_dir": CONFIGS, flag: Path(url)}
    with larder_error(code) as caught:
        load_settings("digits", **given)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "template", ["/etc/hosts", f"{CONFIGS.absolute()}/experiments/digits.yaml", "../x", "a/.."]
)
def test_a_template_outside_of_its_folder_is_refused(template):
    with larder_error("config.template", "--set experiment.template") as caught:
        loaded("source.url=data", f"experiment.template={template}")
    assert "not in configs/experiments" in caught.value.message
    with larder_error("config.template", str(CONFIGS / "experiments")):  # a name like any other
        loaded("source.url=data", "experiment.template=a..b.yaml")


def test_a_format_of_shards_is_one_of_the_registry(monkeypatch):
    given = ("source.url=data", "shards.format=other")
    with larder_error("config.invalid_value", "--set shards.format") as caught:
        loaded(*given)
    assert all(name in caught.value.message for name in FORMATS)
    monkeypatch.setitem(FORMATS, "other", FORMATS["webdataset"])
    assert loaded(*given).dataset.shards.format == "other"
