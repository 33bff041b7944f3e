"""No consumer and no delivery is forgotten: in the pages, in the goldens, in the advice."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from larder.experiments.consumers.registry import CONSUMERS, consumer_configs, consumer_of
from larder.experiments.delivery import ConfigFile, ConfigRequest
from larder.jobs.results import Totals
from larder.manifest.sealed import StoredFile
from larder.pipeline.configs import write_configs
from larder.pipeline.delivery_facts import choices, chosen
from larder.pipeline.settings import load_settings
from tests.support.errors import larder_error
from tests.support.golden import FOLDER, check_golden
from tests.unit.experiments.made import SHARDS, cluster, cluster_of, delivered

ROOT = Path(__file__).parents[3]

PLACES = {
    "determined": ("experiment-configs.md", "experiments/deliveries/*/experiment.yaml"),
    "sagemaker": ("sagemaker.md", "sagemaker/*.json"),
    "kubernetes": ("kubernetes.md", "kubernetes/[jp]o[bd]-*.yaml"),
    "kubeflow": ("kubernetes.md", "kubernetes/trainjob-*.yaml"),
    "slurm": ("slurm.md", "slurm/*.sh"),
    "croissant": ("croissant.md", "plain/croissant.json"),
    "json": ("croissant.md", "plain/dataset.json"),
}
"""Of each consumer, the page that says how to use it, and the configs that are compared."""


def test_every_consumer_has_a_page_and_goldens():
    assert PLACES.keys() == CONSUMERS.keys()
    for kind, (page, goldens) in PLACES.items():
        stated = "Determined" if kind == "determined" else f"kind: {kind}"  # it is the default
        assert stated in (ROOT / "docs" / "how-to" / page).read_text(), kind
        assert any(FOLDER.glob(goldens)), kind


@pytest.mark.parametrize("kind", CONSUMERS)
def test_every_delivery_is_advised_and_explained(kind):
    """In the golden table it is the first choice of some facts, unless it has to be asked for."""
    asked_for = {"determined": {"data_layer"}}.get(kind, set())
    rows = re.findall(rf"^\| {kind} [^|]*\| (\w+) \|", (FOLDER / "advice.md").read_text(), re.M)
    assert set(consumer_configs(kind).DELIVERIES) - asked_for == set(rows) - {"refused"}
    advice = (ROOT / "docs" / "how-to" / "choosing-a-delivery.md").read_text()
    assert all(f"`{delivery}`" in advice for delivery in consumer_configs(kind).DELIVERIES)


DATASETS, CLUSTERS = (
    [path.stem for path in sorted((ROOT / "configs" / folder).glob("*.yaml"))]
    for folder in ("datasets", "clusters")
)


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("cluster", [*CLUSTERS, "kubernetes, kubeflow"])
def test_every_shipped_dataset_works_with_every_shipped_cluster(dataset, cluster):
    name, _, kind = cluster.partition(", ")
    variables = ("LARDER_SOURCE", "LARDER_STORAGE", "IMAGENET_SOURCE")
    environ = {variable: f"s3://{variable.lower()}/of-it" for variable in variables}
    asked = load_settings(
        dataset,
        name,
        config_dir=ROOT / "configs",
        settings=[f"cluster.consumer.kind={kind}"] if kind else [],
        environ=environ,
    )
    consumer = consumer_configs(asked.cluster.consumer.kind)
    version, contents = delivered(asked.cluster.storage.url)
    sizes = {"samples": 1797, "omitted": 0, "unlisted": False, "cache_bytes": None}
    offered = choices(asked.dataset, asked.cluster, asked.template, Totals(5, 5_000), **sizes)
    version = version._replace(delivery=chosen(asked.dataset, asked.cluster, offered))
    assert consumer.config_files(
        ConfigRequest(asked.template, version, contents, asked.cluster, where=asked.template_name)
    )


@pytest.mark.parametrize(
    ("kind", "name"), [("croissant", "croissant.json"), ("json", "dataset.json")]
)
def test_descriptions_are_as_they_were(kind, name):
    url = "s3://bucket/team/"
    version, contents = delivered(url)
    shards = {
        split: [
            StoredFile(f"{SHARDS}/{split}/digits-{split}-{number:06}.tar", 1_000, digest, "shard")
            for number, digest in enumerate(("ab" * 32, "cd" * 32)[: facts.shards])
        ]
        for split, facts in contents.splits.items()
    }
    contents = replace(contents, shard_files=lambda: shards, class_names=("cat", "dog"))
    here = cluster_of(kind, url)
    request = ConfigRequest({}, version, contents, here, where="")
    (file,) = consumer_configs(kind).config_files(request)
    assert file.name == name
    check_golden(f"plain/{name}", file.text)


def test_a_result_that_breaks_a_rule_is_not_emitted():
    version, contents = delivered("/srv")
    here = cluster("/srv")
    consumer = consumer_of(here)
    with larder_error("config.invalid_experiment"):
        consumer.config_files(ConfigRequest({"name": "x"}, version, contents, here, where="t.yaml"))


def test_only_what_changed_is_written(tmp_path):
    output = tmp_path / "out" / "here" / "digits"
    files = (ConfigFile("a.yaml", "a: ä\n"), ConfigFile("b.yaml", "b: 1\n"))
    assert [written.changed for written in write_configs(files, output)] == [True, True]
    assert (output / "a.yaml").read_text(encoding="utf-8") == "a: ä\n"
    before = (output / "a.yaml").stat()
    again = write_configs((files[0], ConfigFile("b.yaml", "b: 2\n")), output)
    assert [(written.path, written.changed) for written in again] == [
        (output / "a.yaml", False),
        (output / "b.yaml", True),
    ]
    after = (output / "a.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert sorted(path.name for path in output.iterdir()) == ["a.yaml", "b.yaml"]


def test_a_file_in_the_way_of_the_directory(tmp_path):
    (tmp_path / "out").write_text("")
    with larder_error("config.path"):
        write_configs([ConfigFile("a.yaml", "")], tmp_path / "out")
