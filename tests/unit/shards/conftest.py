import uuid
from collections.abc import Iterator

import pytest

from larder.store.base import Store
from tests.support.memory import MemoryStore, forget


@pytest.fixture
def store() -> Iterator[Store]:
    name = uuid.uuid4().hex
    yield MemoryStore(name)
    forget(name)
