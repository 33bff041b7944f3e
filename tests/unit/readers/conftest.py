"""Processes of one test alone."""

import pytest

from larder.readers import workers


@pytest.fixture
def crew(monkeypatch):
    """Processes of a test alone; none has started."""
    crew = workers.Crew()
    monkeypatch.setattr(workers, "_crew", crew)
    yield crew
    crew.stop()
