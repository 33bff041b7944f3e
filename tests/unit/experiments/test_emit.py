from larder.experiments.consumers.registry import consumer_of
from larder.experiments.delivery import ConfigFile, ConfigRequest
from larder.pipeline.configs import write_configs
from tests.support.errors import larder_error


def test_a_result_that_breaks_a_rule_is_not_emitted(delivered, cluster):
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
