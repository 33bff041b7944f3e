"""The benchmark of caches says that TensorFlow is missing, or runs in the Python that has it."""

import json

import pytest

from benchmarks import cache


def test_without_tensorflow_it_ends_with_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "installed", lambda packages: {})
    with pytest.raises(SystemExit) as caught:
        [*cache.measure(cache.PARSER.parse_args([]), tmp_path)]
    assert "TensorFlow is not installed" in str(caught.value.code)


@pytest.mark.parametrize("status", [0, 3])
def test_all_of_it_runs_in_the_python_that_is_given(tmp_path, status):
    python, words = tmp_path / "python", tmp_path / "words"
    answer = json.dumps({"cases": {"build": {"ours": 1.0, "peers": {"YogaDL": 2.0}}}})
    python.write_text(f"#!/bin/sh\nprintf '%s|' \"$@\" > {words}\necho '{answer}'\nexit {status}\n")
    python.chmod(0o755)
    flags = cache.PARSER.parse_args(["--peers-python", str(python), "--rounds", "1"])
    if status:
        with pytest.raises(SystemExit) as caught:
            [*cache.measure(flags, tmp_path)]
        assert caught.value.code == status
    else:
        (figure,) = cache.measure(flags, tmp_path)
        assert (figure.name, figure.ours, figure.peers) == ("build", 1.0, {"YogaDL": 2.0})
    wanted = ["-m", "benchmarks.cache", "--json", "--rounds=1", "--files-scale=1.0"]
    assert words.read_text().split("|")[:-1] == [*wanted, f"--directory={tmp_path}"]
