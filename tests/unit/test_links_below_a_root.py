"""Links below a directory that lead out of it, however the directory is named."""

import os

import pytest

from larder.disk import check_inside


@pytest.fixture
def root(tmp_path, monkeypatch):
    root = tmp_path / "root"
    (root / "inside").mkdir(parents=True)
    (root / "o").symlink_to(tmp_path)
    (root / "in").symlink_to("inside")
    monkeypatch.chdir(root)
    return root


@pytest.mark.parametrize("folder", ["o", "o/long/name", "in/../../other"])
@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_link_that_leads_out_is_refused(folder, name, root):
    # "." is what pathlib leaves out of a path below it.
    folder, base = (folder, ".") if name == "." else (f"{root}/{folder}", f"{root}{name}")
    with pytest.raises(OSError, match="a link leads out"):
        check_inside(os.fsencode(folder), os.fsencode(base))


@pytest.mark.parametrize("base", [".", "/", "//"])
def test_folders_inside_are_not_refused(base, root):
    for folder in ("in/new", "inside/new", "."):
        folder = folder if base == "." else f"{root}/{folder}"
        check_inside(os.fsencode(folder), os.fsencode(base))
