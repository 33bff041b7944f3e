"""classes.json: the number of each class, beside version.json, for programs without Larder."""

from __future__ import annotations

import json

from larder.manifest.digest import sha256_hex
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import FileFacts, VersionDocument
from larder.versions.publish import own_file_errors

__all__ = ["class_numbers", "put_classes"]


def put_classes(root: Store, version: VersionDocument) -> tuple[FileFacts, ...]:
    """Write the classes of a version as a JSON object, in the order of their numbers.

    Args:
        root: The dataset's root.
        version: The version, complete but for its further files.

    Returns:
        One file; none for a version without classes.

    Raises:
        StoreError: The storage refuses writes.
    """
    if not version.classes:
        return ()
    data = class_numbers(version)
    key = layout.classes_key(version.id)
    with own_file_errors():
        root.put(key, data)
    return (FileFacts(path=key, bytes=len(data), sha256=sha256_hex(data), role="classes"),)


def class_numbers(version: VersionDocument) -> bytes:
    """The content of the file.

    Args:
        version: The version.
    """
    numbers = {name: number for number, name in enumerate(version.classes)}
    return (json.dumps(numbers, ensure_ascii=False, indent=0) + "\n").encode()
