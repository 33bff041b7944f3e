"""Copies between two places for tests, with every call counted."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_lab import DOCUMENT, opened, write

from larder.copy.allowance import CopyLimits
from larder.copy.copy_place import CopyPlace, Origin
from larder.copy.copy_settings import load_copy_settings
from larder.copy.copying import copy
from larder.copy.engine import copy_batch
from larder.copy.proof import CopiedObject
from larder.copy.uploads import UploadRecords
from larder.errors import Failure
from larder.jobs.step_runner import InlineRunner
from larder.progress import NullProgress, Progress, StageTimes
from larder.store.base import ObjectInfo, Store, UploadedPart
from tests.support.memory import forget
from tests.support.runs import between, forget_manifests
from tests.support.servers import S3Server
from tests.support.stores import Effect, FaultyStore, RecordedCall, Recorder, keys_of

OWN = "_larder/"
PLACE = CopyPlace(Origin())
"""Where the record is, whatever the source."""


@dataclass(frozen=True)
class CopyLab:
    """A source and a storage; ``options`` are those of every copy."""

    source: str
    storage: str
    options: Mapping[str, Any]

    def copy(self, *, plan_only: bool = False, **more: Any) -> DOCUMENT:
        """As a new process would."""
        forget_manifests()
        settings = self.settings(**more)
        runner = InlineRunner(settings.batches_at_once, StageTimes())
        return copy(settings, runner, plan_only=plan_only)

    def settings(self, **more: Any) -> Any:
        options = {**self.options, **more}
        return load_copy_settings(self.source, self.storage, **options)

    def add(self, objects: Mapping[str, bytes]) -> None:
        write(self.source, objects)

    def remove(self, *keys: str) -> None:
        with opened(self.source) as store:
            for key in keys:
                store.delete(key)

    def there(self) -> dict[str, bytes]:
        """What is at the storage, without Larder's own files."""
        return contents(self.storage)

    def own(self) -> list[str]:
        """The keys of Larder's own files at the storage."""
        with opened(self.storage) as store:
            return keys_of(store, OWN)


def contents(url: str) -> dict[str, bytes]:
    """All objects, without Larder's own."""
    with opened(url) as store:
        return {key: bytes(store.get(key)) for key in keys_of(store) if not key.startswith(OWN)}


@contextmanager
def buckets(objects: Mapping[str, bytes], **options: Any) -> Iterator[CopyLab]:
    """Between two buckets in memory, whose etags are md5."""
    name = uuid.uuid4().hex
    lab = CopyLab(f"memory://{name}-source", f"memory://{name}", options)
    lab.add(objects)
    try:
        yield lab
    finally:
        forget(name)
        forget(f"{name}-source")


@contextmanager
def directories(folder: Path, objects: Mapping[str, bytes], **options: Any) -> Iterator[CopyLab]:
    """Between two directories, whose etags prove nothing."""
    lab = CopyLab(str(folder / "source"), str(folder / "storage"), options)
    lab.add(objects)
    yield lab


def lab_of(
    kind: str, folder: Path, objects: Mapping[str, bytes], **options: Any
) -> AbstractContextManager[CopyLab]:
    """Between ``buckets`` or ``directories``."""
    if kind == "buckets":
        return buckets(objects, **options)
    return directories(folder, objects, **options)


def batch(
    source: Store,
    target: Store,
    infos: Iterable[ObjectInfo],
    limits: CopyLimits,
    copied: Callable[[CopiedObject], None] = lambda row: None,
    *,
    prefix: str = "",
    progress: Progress | None = None,
) -> tuple[Failure, ...]:
    """Copy a batch by the native engine; what failed."""
    given: dict[str, Any] = {"prefix": prefix, "limits": limits, "copied": copied}
    return copy_batch(source, target, infos, progress=progress or NullProgress(), **given)


Calls = list[RecordedCall]


def calls(lab: CopyLab, run: Callable[[], Any]) -> tuple[Any, Calls, Calls]:
    """The result of a run, and its calls of the source and of the storage."""
    with between(recorder := Recorder()):
        result = run()
    url = lab.settings().open_source().url
    here = [call for store in recorder.stores if store.url == url for call in store.calls]
    there = [call for store in recorder.stores if store.url != url for call in store.calls]
    return result, here, there


def broken(
    url: str, *methods: str, effect: Effect, keys: Iterable[str | None] = (None,), nth: int = 1
) -> AbstractContextManager[None]:
    """Makes calls of one of the places fail, from the ``nth`` on; of all keys, or of some."""
    with opened(url) as store:
        wanted = store.url

    def wrap(store: Store) -> Store:
        faulty = FaultyStore(store)
        if store.url == wanted:
            for key in keys:
                for method in methods:
                    faulty.add(method, effect, key=key, nth=nth, times=None)
        return faulty

    return between(wrap)


def uploads_left(url: str, server: S3Server) -> list[str]:
    """The keys of multipart uploads that were begun below a URL, and are neither done nor gone."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    return [key.removeprefix(f"{prefix}/") for key in server.uploads(bucket, f"{prefix}/")]


def leave_upload(store: Store, key: str, *, recorded: bool) -> None:
    """Begin a multipart upload and leave it, with or without a record to continue it by."""
    upload = store.begin_upload(key)
    assert upload is not None
    upload.leave()
    if recorded:
        parts = [UploadedPart(1, 5, "e", 0, True)]
        UploadRecords(store, PLACE.uploads).save(
            ObjectInfo(key, 9, "e", 0), key, 5, upload.id, parts
        )
