import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from larder.cli.init_command import EXAMPLES, examples, main, write_examples
from tests.support.errors import larder_error

CONFIGS = Path(__file__).parents[3] / "configs"
SHIPPED = {name: (CONFIGS / name).read_bytes() for name in EXAMPLES}


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_examples_are_the_configs_that_are_tracked():
    assert examples() == SHIPPED
    git = ["git", "-C", str(CONFIGS), "ls-files"]
    tracked = subprocess.run(git, check=True, capture_output=True, text=True).stdout.split()
    assert list(SHIPPED) == sorted(tracked)
    project = tomllib.loads((CONFIGS.parent / "pyproject.toml").read_text())
    packaged = project["tool"]["setuptools"]["package-data"]["larder"]
    assert [name for name in packaged if "examples" in name] == [
        f"cli/examples/{name}" for name in SHIPPED
    ]


def test_all_are_written_once(tmp_path, capsys):
    base = tmp_path / "a/with space"
    assert main([str(base)]) == 0
    assert files(base) == {f"configs/{name}": data for name, data in SHIPPED.items()}
    out = capsys.readouterr().out
    assert out.startswith(f"wrote {len(SHIPPED)} files to {base / 'configs'}\nnext:\n")
    assert f"\n  cd '{base}'\n  larder prepare --dataset files --set source.url=" in out
    before = {path: path.stat().st_mtime_ns for path in base.rglob("*")}
    assert main([str(base), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    expected = {"configs": str(base / "configs"), "written": [], "kept": list(SHIPPED)}
    assert document == expected
    assert {path: path.stat().st_mtime_ns for path in base.rglob("*")} == before


def test_a_file_that_differs_is_named_and_nothing_is_written(tmp_path):
    own = tmp_path / "datasets/files.yaml"
    own.parent.mkdir()
    own.write_text("my own")
    (tmp_path / "datasets/mine.yaml").write_text("not shipped")
    before = files(tmp_path)
    with larder_error("config.path", str(tmp_path)) as caught:
        write_examples(tmp_path)
    assert "datasets/files.yaml" in caught.value.message
    assert files(tmp_path) == before

    written, kept = write_examples(tmp_path, force=True)
    assert (set(written), kept) == (set(SHIPPED), [])
    assert files(tmp_path) == {**SHIPPED, "datasets/mine.yaml": b"not shipped"}


@pytest.mark.parametrize(
    ("given", "code", "where"),
    [
        ("s3://bucket/x", "config.path", "DIR"),
        ("https://u:pw@host/x", "config.secret", "DIR"),
        ("file", "config.path", "file: not a directory"),
        ("file/deep", "config.path", "file: not a directory"),
        ("/dev/null/deep", "config.path", "/dev/null: not a directory"),
        ("user:hunter2@host/x", "config.secret", "DIR: "),
        ("taken", "config.path", "taken/configs"),
    ],
)
def test_a_place_where_no_configs_can_be_is_refused(given, code, where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "taken/configs/datasets/files.yaml").mkdir(parents=True)
    with larder_error(code) as caught:
        main([given])
    assert str(caught.value).startswith(where)
    assert "hunter2" not in str(caught.value)
    assert files(tmp_path) == {"file": b"in the way"}
