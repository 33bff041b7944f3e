"""Files in the source that a dataset file names: label files and annotation files."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from larder.errors import NotFoundError
from larder.pipeline.planning.source_state import _read_label_file
from larder.store.base import Store
from larder.store.delegate import DelegatingStore
from tests.support.errors import larder_error
from tests.support.memory import MemoryStore, forget


class Vanishing(DelegatingStore):
    """A source from which a file is deleted after its head."""

    def around(self, method: str, key: str, call: Callable[..., Any], **options: Any) -> Any:
        if method == "get":
            raise NotFoundError("object.missing", "no such object", where=key)
        return call(**options)


@pytest.fixture
def source() -> Iterator[Store]:
    name = uuid.uuid4().hex
    yield MemoryStore(name)
    forget(name)


def test_a_label_file_that_is_deleted_after_its_head_is_missing(source):
    source.put("labels.txt", b"a 0\n")
    assert _read_label_file(source, "train", "labels.txt") == b"a 0\n"
    with larder_error("config.label") as caught:
        _read_label_file(Vanishing(source), "train", "labels.txt")
    assert caught.value.message == "no such label file"
    assert "put the labels of split 'train' there" in (caught.value.hint or "")
