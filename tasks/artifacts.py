"""Artifacts of runs in Prefect's UI for people, and events for automations.

Prefect lists all artifacts of a name together: names tell teams, datasets and storages apart.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.events import emit_event

from larder.card.draw import Drawn
from larder.catalog.history import list_versions, version_rows
from larder.catalog.stored_dataset import StoredDataset
from larder.cli.display import amounts, fraction
from larder.errors import LarderError, printable
from larder.growth.compare import Changes
from larder.pipeline.configs import Written
from larder.pipeline.planning.plan import Plan
from larder.pipeline.planning.plan_report import plan_document, plan_rows
from larder.pipeline.settings import Settings
from larder.progress import Stage, StageTimes
from larder.units import format_count
from larder.versions.runs import RunRecord
from tasks.run_progress import set_within

PROGRESS_INTERVAL_SECONDS = 5.0
SHOWN_VERSIONS = 100
_FIRST = ("delivery", "cost")

TEAM = "LARDER_TEAM"
"""Environment variable: tells teams apart on one server of Prefect."""

_subject: ContextVar[tuple[str, str]] = ContextVar("subject", default=("", ""))


def team() -> str:
    """Return the team of this process; empty if the server has one team only."""
    return os.environ.get(TEAM, "")


def about(dataset: str, storage: str | None = None) -> AbstractContextManager[None]:
    """Name artifacts that are made within a ``with`` block after a dataset and the storage's URL.

    Without ``storage``, the storage of the block around this one stays.
    """
    return set_within(_subject, (dataset, _subject.get()[1] if storage is None else storage))


def _name(key: str) -> str:
    """Prefix a key with team, dataset, and a digest of both and the storage.

    Prefect allows lower-case letters, digits and hyphens: the digest tells pets_2 from pets-2.

    >>> with about("pets_2", "s3://bucket/"):
    ...     _name("card")
    'pets-2-31142422-card'
    """
    dataset, storage = _subject.get()
    text = repr((team(), dataset, storage)).encode()
    parts = team(), dataset, hashlib.sha256(text).hexdigest()[:8], key
    return re.sub("[^a-z0-9]+", "-", "-".join(filter(None, parts)))


def table(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """Make a table, if there are rows; Prefect keeps the tables of earlier runs."""
    if not rows:
        return
    cells = [
        {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    ]
    with suppress(Exception):  # a refusal of the server does not change how the run ends
        create_table_artifact(key=_name(key), table=cells, description=description)


def note(key: str, markdown: str, description: str | None = None) -> None:
    with suppress(Exception):
        create_markdown_artifact(key=_name(key), markdown=markdown, description=description)


def plan_table(plan: Plan) -> None:
    """Make a table of a plan, as ``--plan`` prints it, with the rows for decisions at the top."""
    document = plan_document(plan)
    items = sorted(plan_rows(document).items(), key=lambda item: item[0] not in _FIRST)
    rows = [{"item": name, "plan": text} for name, texts in items for text in texts]
    rows += [{"item": "warning", "plan": each["message"]} for each in document["warnings"]]
    table("plan", rows, f"plan for {document['dataset']}, version {document['version']}")


def config_note(configs: Sequence[Written]) -> None:
    texts = [
        f"{printable(str(config.path))}\n\n~~~~yaml\n{config.path.read_text('utf-8')}~~~~"
        for config in configs
    ]
    names = ", ".join(printable(config.path.name) for config in configs)
    note("config", "\n\n".join(texts), f"emitted: {names}")


def versions_table(settings: Settings) -> None:
    """Make a table of the versions of a dataset, the newest first, as ``larder ls`` lists them."""
    name = settings.dataset.name
    with suppress(LarderError):  # the version is published all the same
        document = list_versions(StoredDataset(name, settings.cluster))
        head, *rows = version_rows(document)[: SHOWN_VERSIONS + 1]
        cells = [dict(zip(head, row, strict=True)) for row in rows]
        count = format_count(len(document["versions"]), "version")
        table("versions", cells, f"{name}: {count}")


def card_note(card: Drawn) -> None:
    """Make a note of the data card's figures and charts, without samples: anyone may see it."""
    if card.url:
        note("card", card.note, f"data card of version {card.version}")


@contextmanager
def stage_progress(times: StageTimes) -> Iterator[None]:
    """Show how far the stages of the flow run are, within a ``with`` block."""
    artifacts, ended = _StageArtifacts(times), threading.Event()

    def watch() -> None:
        while not ended.wait(PROGRESS_INTERVAL_SECONDS):
            artifacts.update()

    watcher = threading.Thread(  # the context says which flow run it is
        target=copy_context().run, args=(watch,), name="progress-artifacts", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        artifacts.update()


class _StageArtifacts:
    """Progress artifacts of stages with a count."""

    def __init__(self, times: StageTimes) -> None:
        self._times = times
        self._ids: dict[str, UUID] = {}
        self._shown: dict[str, tuple[float, str]] = {}

    def update(self) -> None:
        for stage in self._times.current():
            state = _percent(stage), f"{stage.name}: {amounts(stage, time.monotonic())}"
            counts = stage.objects or stage.bytes
            if counts and state != self._shown.get(stage.name):
                with suppress(Exception):  # the next call tries again
                    self._send(stage.name, *state)
                    self._shown[stage.name] = state

    def _send(self, stage: str, percent: float, description: str) -> None:
        if stage in self._ids:
            update_progress_artifact(self._ids[stage], percent, description)
        else:
            id_ = create_progress_artifact(percent, _name(f"progress-{stage}"), description)
            self._ids[stage] = cast(UUID, id_)


def _percent(stage: Stage) -> float:
    """0 while the total is unknown."""
    return 100.0 if stage.ended is not None else round(100 * (fraction(stage) or 0.0), 1)


PUBLISHED = "larder.version.published"
GROWN = "larder.dataset.grown"
GROWN_PERCENT = 20
"""A dataset whose number of samples grows by more than this has grown."""


def recorded(result: tuple[Settings, RunRecord]) -> None:
    """Emit the events of a run, if it has published a version, and make the table of versions."""
    settings, record = result
    if record.published:
        _emit(record)
    versions_table(settings)


def _emit(record: RunRecord) -> None:
    growth_percent = Changes(**record.changes).growth_percent
    suffix = f"@{team()}" if team() else ""  # as in the limit's name
    resource = {
        "prefect.resource.id": f"larder.dataset.{record.dataset}{suffix}",
        "prefect.resource.name": record.dataset,
        "larder.version": record.version,
    }
    payload = {"changes": dict(record.changes), "growth_percent": round(growth_percent, 1)}
    for event in (PUBLISHED, *([GROWN] if growth_percent > GROWN_PERCENT else [])):
        emit_event(event, resource, payload=payload)
