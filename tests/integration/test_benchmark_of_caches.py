"""The benchmark of caches says that TensorFlow is missing, or runs in the Python that has it."""

import pytest

from benchmarks import cache


def test_without_tensorflow_it_ends_with_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(cache, "installed", lambda packages: {})
    with pytest.raises(SystemExit) as caught:
        cache.main(["--json"])
    assert "TensorFlow is not installed" in str(caught.value.code)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("status", [0, 3])
def test_all_of_it_runs_in_the_python_that_is_given(tmp_path, capfd, status):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nprintf "%s|" "$@"\nexit {status}\n')
    python.chmod(0o755)
    with pytest.raises(SystemExit) as caught:
        cache.main(["--peers-python", str(python), "--runs", "1", "--json"])
    assert caught.value.code == status
    wanted = "-m|benchmarks.cache|--runs|1|--files-scale|1.0|--json|"
    assert capfd.readouterr().out == wanted
