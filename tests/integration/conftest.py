"""A dataset of small texts, for tests that repair it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline_lab import Lab
from verify_lab import text_lab

from larder.store.base import Store


@pytest.fixture
def text(tmp_path: Path) -> Lab:
    return text_lab(tmp_path)


@pytest.fixture
def root(text: Lab) -> Iterator[Store]:
    with text.opened_root() as store:
        yield store
