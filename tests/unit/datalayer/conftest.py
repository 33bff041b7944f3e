"""A storage of its own for every test of the data layer, and no trial."""

import os

import pytest


@pytest.fixture(autouse=True)
def storage(tmp_path, monkeypatch):
    """The storage, which `LARDER_CACHE` names."""
    for name in list(os.environ):
        if name.startswith("DET_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LARDER_CACHE", str(tmp_path / "storage"))
    monkeypatch.setenv("LARDER_CACHE_DIR", str(tmp_path / "local"))
    return tmp_path / "storage"
