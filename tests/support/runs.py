"""Runs of the pipeline for tests: settings without files, and stores wrapped by a test."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc

from larder import store as stores
from larder.config.models.cluster import Cluster
from larder.config.models.copy_config import RunnerConfig
from larder.config.models.dataset import Dataset
from larder.copy.copy_job import cut_batches, even_batch_bytes
from larder.jobs import manifests
from larder.jobs.results import Totals
from larder.pipeline.settings import Settings
from larder.samples.sample_order import objects_of
from larder.store import open_store
from larder.store.base import Store
from tests.support import memory  # noqa: F401 - registers memory://

TEMPLATE: dict[str, Any] = {
    "entrypoint": "python3 train.py",
    "hyperparameters": {},
    "searcher": {"name": "single", "metric": "validation_loss"},
}

_REACHABLE = "s3://memory-"


def run_settings(
    source: str | Path | Mapping[str, Any],
    storage: str | Path | Mapping[str, Any],
    output: Path,
    *,
    cluster: Mapping[str, Any] | None = None,
    template: dict[str, Any] = TEMPLATE,
    **fields: Any,
) -> Settings:
    """Settings of a run of a dataset ``d``, with these fields, on a cluster ``c``.

    ``source`` and ``storage`` are URLs, or all of ``source:`` and ``storage:`` of the files,
    ``cluster`` further fields of the cluster file; configs are written to ``output``.
    """
    return Settings(
        dataset=Dataset.model_validate({"name": "d", "source": _location(source), **fields}),
        cluster=Cluster.model_validate(
            {"name": "c", "storage": _location(storage), **(cluster or {})}
        ),
        template=template,
        template_name="test.yaml",
        output=output,
    )


def forget_manifests() -> None:
    """Make the next run fetch every manifest, as in a new process."""
    manifests.forget()


def copy_batches(root: Path, **runner: int) -> int:
    """The number of batches in which the mirror below a dataset's root was copied, all at once."""
    (order,) = root.glob("segments/*/work/order-*.parquet")
    objects = pa.Table.from_batches(objects_of(order)).sort_by("key")
    copies = Totals(objects.num_rows, pc.sum(objects.column("size_bytes")).as_py())
    most = even_batch_bytes(copies, RunnerConfig.model_validate(runner))
    return len(list(cut_batches(objects.to_batches(), most)))


def _location(where: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    return dict(where) if isinstance(where, Mapping) else {"url": str(where)}


@contextmanager
def between(wrap: Callable[[Store], Store] = lambda store: store, **options: Any) -> Iterator[None]:
    """Make the pipeline use ``wrap(store)`` for every store that it opens, until the block ends.

    A URL ``s3://memory-NAME/...`` is mapped to ``memory://NAME/...``: a storage in memory that the
    delivery rules treat as a bucket. What is wrapped is the retrying store; ``options`` are further
    arguments of `larder.store.open_store`.
    """
    lock = threading.Lock()

    def opened(url: str, **given: Any) -> Store:
        if url.startswith(_REACHABLE):
            url = f"memory://{url.removeprefix(_REACHABLE)}"
        with lock:
            return wrap(open_store(url, **{**given, **options}))

    with mock.patch.object(stores, "open_store", opened):
        yield
