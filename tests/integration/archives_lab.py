"""Sources with archives for tests: tars, and tars of tars as ImageNet ships."""

import io
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline_lab import DOCUMENT, Lab, contents, directory_lab, images

from tests.support.runs import between
from tests.support.stores import RecordedCall, Recorder


def archive_lab(folder: Path, objects: dict[str, bytes], **fields: Any) -> Lab:
    lab = directory_lab(folder, objects, **fields)
    return replace(lab, source={"url": lab.source, "archives": "expand"})


def with_source(lab: Lab, **fields: Any) -> Lab:
    return replace(lab, source={**dict(lab.source), **fields})


def samples(lab: Lab, document: DOCUMENT | None = None) -> dict[str, dict[str, bytes]]:
    """The samples of a version, by key; of the only one by default."""
    published = lab.check()[document["version"]] if document else lab.only()
    return {key: parts for (_, key), parts in contents(published).items()}


def tar(members: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as file:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return target.getvalue()


def by_class(classes: str = "abc") -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for key, data in images(classes).items():
        folder, _, name = key.partition("/")
        found.setdefault(folder, {})[name] = data
    return found


def imagenet(classes: str = "abc") -> bytes:
    return tar({f"{name}.tar": tar(members) for name, members in by_class(classes).items()})


def reads(run: Callable[[], DOCUMENT], piece: str = ".tar") -> tuple[DOCUMENT, list[RecordedCall]]:
    """What a run returns, and how it read objects of the source with that in their keys."""
    with between(recorder := Recorder()):
        document = run()
    calls = (call for store in recorder.stores if "/local" not in store.url for call in store.calls)
    return document, [
        each for each in calls if each.method in ("get", "open") and piece in each.key
    ]
