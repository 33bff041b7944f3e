"""Draws the card of a version, and puts it into the storage: after a run, or on its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from larder.card.card_facts import CardFacts, read_facts, samples_by_split
from larder.card.card_page import card_note, card_page
from larder.card.charts import charts_of
from larder.card.pictures import pictures
from larder.config.config_document import UNREAD
from larder.disk import scratch
from larder.errors import LarderError, printable
from larder.packages import require
from larder.pipeline.configs import location
from larder.pipeline.settings import Settings
from larder.progress import NullProgress, Progress
from larder.segments.stores import storage_of
from larder.store import object_url
from larder.store.own_files import published_file_errors
from larder.versions import layout
from larder.versions.find import published_version
from larder.versions.runs import RunRecord

_INTERRUPTED = "run.interrupted"


class Drawn(NamedTuple):
    """The URL of a card, or a warning that says why the card is missing.

    ``note`` has its figures and charts in Markdown.
    """

    version: str
    url: str = ""
    note: str = ""
    warning: str = ""


def card(settings: Settings, name: str) -> dict[str, Any]:
    """Draw the card of a version, named by its ID or a tag; returns a JSON document.

    Raises:
        ConfigError: ``config.missing_package``: matplotlib is not installed;
            ``version.missing``: no such version or tag.
        DamageError: A document or the index of the version is damaged.
    """
    drawn = _draw(settings, name, NullProgress())
    return {"dataset": settings.dataset.name, "version": drawn.version, "card": drawn.url}


def draw_card(settings: Settings, version: str, *, progress: Progress) -> Drawn:
    """Draw the card of a version that was just published; a failure becomes a warning."""
    progress.start("card")
    try:
        return _draw(settings, version, progress)
    except LarderError as error:
        if error.code == _INTERRUPTED:
            raise
        reason = f"{error}"
    except Exception as error:  # noqa: BLE001 # the version is published, whatever matplotlib or Pillow raise
        reason = f"{type(error).__name__}: {error}"
    finally:
        progress.finish("card")
    hint = f"make it with: larder card {settings.dataset.name}@{version}"
    return Drawn(version, warning=printable(f"the data card was not drawn: {reason}; {hint}"))


def _draw(settings: Settings, name: str, progress: Progress) -> Drawn:
    require("card")
    store = storage_of(settings.dataset, settings.cluster)
    version = published_version(store, settings.dataset.name, name)
    with scratch() as folder:
        samples = samples_by_split(store, version, folder)
        facts = read_facts(store, version, samples)
        charts = charts_of(facts)
        page = card_page(
            facts,
            description=settings.dataset.description or "",
            lineage=_lineage(settings, facts),
            charts=charts,
            pictures=pictures(samples, settings.dataset.card.samples, version.id, progress),
        )
    key = layout.card_key(version.id)
    with published_file_errors():
        store.put(key, page.encode())
    url = object_url(store.url, key)
    return Drawn(version.id, url, card_note(facts, charts=charts, url=url))


def _lineage(settings: Settings, facts: CardFacts) -> dict[str, str]:
    version = facts.version
    source = settings.dataset.source.url
    inventory = [f"{file.path} (sha256 {file.sha256})" for file in version.files_of("objects")]
    return {
        "source": "the variables in source.url are not set" if source == UNREAD else source,
        "inventory": ", ".join(inventory),
        "inputs digest": version.inputs,
        "version": version.id,
        "content digest": version.digest,
        "location": location(settings, version.id),
        "segments": ", ".join(use.id for use in version.segments),
        "shard format": ", ".join(facts.formats),
        "omitted rows": f"{version.omitted:,}",
        "skipped": f"{version.skipped:,}",
        **_prepared(facts.run),
    }


def _prepared(run: RunRecord | None) -> dict[str, str]:
    """Return time, place and packages of the run that prepared the version, if recorded."""
    if run is None:
        return {}
    packages = (f"{name} {version}" for name, version in run.packages.items())
    return {
        "prepared": f"{run.began} by {run.flow_run or run.command} on {run.host}",
        "with": ", ".join(packages),
    }


def card_lines(document: Mapping[str, Any]) -> list[str]:
    return [
        f"{document['dataset']} version {document['version']}",
        f"  card     {document['card']}",
    ]
