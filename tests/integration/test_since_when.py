"""Since when a reused version exists."""

import os

from pipeline_lab import directory_lab, images

from larder.pipeline.run_report import run_lines, status_line


def test_a_reused_version_tells_since_when_it_exists(tmp_path):
    lab = directory_lab(tmp_path, images("ab", 2), cache=None)
    first = lab.prepare()
    version = first["version"]
    (document,) = lab.folder.glob("versions/*/version.json")
    os.utime(document, (1_700_000_000, 1_700_000_000))
    again = lab.prepare()
    assert again["published"] == "2023-11-14T22:13:20Z"
    expected = f"{again['dataset']} reused: version {version} (published 2023-11-14T22:13:20Z)"
    assert run_lines(again)[0].startswith(expected)
    assert status_line(again) == expected
    assert "published" not in run_lines(first)[0]
    os.utime(document, (0, 0))  # as where the store dates nothing
    assert status_line(lab.prepare()) == f"{again['dataset']} reused: version {version}"
