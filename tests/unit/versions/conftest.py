"""A dataset's root in memory, for every test of versions."""

import uuid

import pytest

from larder.store import open_store
from larder.store.base import Store


@pytest.fixture
def root() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/", retry=None)
