"""Processes of one test alone."""

import pytest

from larder.readers import loader_workers


@pytest.fixture
def crew(monkeypatch):
    """Processes of a test alone; none has started."""
    crew = loader_workers.LoaderWorkers()
    monkeypatch.setattr(loader_workers, "_shared_workers", crew)
    yield crew
    crew.stop()
