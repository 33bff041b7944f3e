from collections.abc import Iterator

import pytest

from tests.support.fake_gcs import FakeGcs, fake_gcs


@pytest.fixture
def gcs() -> Iterator[FakeGcs]:
    with fake_gcs() as server:
        yield server
