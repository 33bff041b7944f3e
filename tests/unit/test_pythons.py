"""Reading works with Python 3.10, and whatever needs a newer one says so."""

import importlib
import sys

import pytest

import flows
import larder
from larder.packages import EXTRAS, READING, require
from tests.support.errors import larder_error
from tests.unit.test_packages import PROJECT


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - READING))
def test_an_extra_that_needs_a_newer_python_says_so_in_one_line(extra, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with larder_error("config.missing_package") as caught:
        require(extra)
    assert "this needs 3.11 or newer" in caught.value.message
    lines = PROJECT["optional-dependencies"][extra]
    assert all("python_version >= '3.11'" in line or "larder-data[" in line for line in lines)


def test_preparing_says_so_before_it_imports_anything(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with larder_error("config.missing_package") as caught:
        larder.prepare("digits")
    assert "3.11" in caught.value.message


def test_flows_say_so_in_one_line_with_the_status_of_a_usage_error(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with pytest.raises(SystemExit) as ended:
        importlib.reload(flows)
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
