"""Shards in memory, for every test of caches."""

import uuid
from collections.abc import Iterator

import pytest
from cache_shelf import Shelf

from tests.support.memory import forget


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    name = uuid.uuid4().hex
    yield Shelf(name)
    forget(name)
