from collections.abc import Iterator

import pytest
from fake_gcs import FakeGcs, fake_gcs


@pytest.fixture
def gcs() -> Iterator[FakeGcs]:
    with fake_gcs() as server:
        yield server
