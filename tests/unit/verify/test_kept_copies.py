"""What a repair keeps as a copy, in a bucket, is compared with what it read."""

from typing import Any

from larder.store import open_store
from larder.store.delegate import DelegatingStore
from larder.verify.replacing import keep
from tests.support.errors import larder_error


def test_a_file_that_changes_while_it_is_copied_is_not_replaced():
    root = open_store("memory://kept-copies/d")
    root.put("shard", b"before")
    contents = iter([b"before", b"after"])

    class Changing(DelegatingStore):
        def open(self, key: str, **options: Any) -> Any:
            if key == "shard":
                root.put(key, next(contents))
            return super().open(key, **options)

    with larder_error("damage.digest"):
        keep(Changing(root), "shard")
