import os
from pathlib import Path

import pytest

from larder.config.load import load_template
from larder.experiments.consumers.registry import consumer_of
from larder.experiments.delivery import ConfigFile
from larder.experiments.emit import write_configs
from tests.support.errors import larder_error

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "experiments"


@pytest.mark.parametrize("name", [path.stem for path in GOLDEN.glob("*.yaml")])
def test_the_bytes_are_those_of_the_golden_file(name, delivered, cluster):
    bucket = "s3://team-us-west-2/"
    west = cluster(bucket, storage={"region": "us-west-2"})
    imagenet = (*delivered(bucket, dataset="imagenet", cache=False), west, "resnet50.yaml")
    digits = (*delivered("file:///srv/data/"), cluster("/srv/data"), "digits.yaml")
    situations = {"digits-directory": digits, "imagenet-bucket": imagenet}
    version, contents, here, template = situations[name]
    loaded = load_template(ROOT / "configs", template)
    file, _ = consumer_of(here).config_files(loaded, version, contents, here, where=template)
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("LARDER_WRITE_GOLDEN"):
        golden.write_text(file.text)
    assert file.name == "experiment.yaml"
    assert file.text == golden.read_text()


def test_a_result_that_breaks_a_rule_is_not_emitted(delivered, cluster):
    version, contents = delivered("/srv")
    here = cluster("/srv")
    consumer = consumer_of(here)
    with larder_error("config.invalid_experiment"):
        consumer.config_files({"name": "x"}, version, contents, here, where="t.yaml")


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
