"""Archives for tests: tars, and tars of tars as ImageNet ships."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

from pipeline_lab import images


def tar(members: Mapping[str, bytes], format_: int = tarfile.GNU_FORMAT) -> bytes:
    """An archive of files."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=format_) as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return target.getvalue()


def by_class(classes: str = "abc", each: int = 4) -> dict[str, dict[str, bytes]]:
    """The images of each class, by their base names."""
    found: dict[str, dict[str, bytes]] = {}
    for key, data in images(classes, each).items():
        folder, _, name = key.partition("/")
        found.setdefault(folder, {})[name] = data
    return found


def imagenet(classes: str = "abc", each: int = 4) -> bytes:
    """A tar with one tar for each class."""
    return tar({f"{name}.tar": tar(members) for name, members in by_class(classes, each).items()})
