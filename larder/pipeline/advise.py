"""Advice on every delivery of a dataset to a cluster: if it is possible, why, and its costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from larder.pipeline.delivery_facts import delivery_document, version_choices
from larder.pipeline.preparing import prepare
from larder.pipeline.settings import Settings
from larder.segments.stores import storage_of
from larder.units import format_bytes, format_seconds, wrapped
from larder.versions.tags import TAG, published_version, read_tag

_EFFECTS = {"prefer": "+", "refuse": "-", "note": " "}


def advise(load: Callable[..., Settings]) -> dict[str, Any]:
    """Advise on the deliveries of a dataset to a cluster, whichever is requested; a JSON document.

    The facts come from the version that ``latest`` names, else from the plan of a run. ``load``
    reads the settings. ``config.invalid_value``: no delivery is possible.
    """
    settings = _asked(load(reads_source=False))
    dataset, cluster = settings.dataset, settings.cluster
    document = {"dataset": dataset.name, "cluster": cluster.name, "consumer": cluster.consumer.kind}
    store = storage_of(dataset, cluster)
    if read_tag(store, TAG):
        version = published_version(store, dataset.name, TAG)
        offered = version_choices(settings, version)
        delivery = delivery_document(dataset, cluster, offered)
        return {**document, "status": "published", "version": version.id, "delivery": delivery}
    planned = prepare(_asked(load(reads_source=True)), plan_only=True)
    return {**document, **{key: planned[key] for key in ("status", "version", "delivery")}}


def _asked(settings: Settings) -> Settings:
    """Replace the requested delivery by ``auto``, and plan without a run that follows."""
    experiment = settings.dataset.experiment.model_copy(update={"delivery": "auto"})
    dataset = settings.dataset.model_copy(update={"experiment": experiment})
    return settings._replace(dataset=dataset, writes=False)


def advise_lines(document: Mapping[str, Any]) -> Iterator[str]:
    delivery = document["delivery"]
    whose = "the published" if document["status"] == "published" else "the planned"
    yield f"{document['dataset']} on {document['cluster']}, a cluster of {document['consumer']}"
    yield from wrapped(f"from {whose} version {document['version']}", "  ", "  ")
    yield "  delivery    possible    start-up    moved        USD     disk"
    for option in delivery["options"]:
        yield _option_line(option, first=option["delivery"] == delivery["kind"])
    yield from _rule_lines("all", delivery["notes"])
    for option in delivery["options"]:
        yield from _rule_lines(option["delivery"], option["rules"])


def _option_line(option: Mapping[str, Any], *, first: bool) -> str:
    if not option["possible"]:
        return f"  {option['delivery']:<11} no"
    startup, moved = format_seconds(option["startup_seconds"]), format_bytes(option["moved_bytes"])
    usd = "unknown" if option["usd"] is None else f"{option['usd']:,.2f}"
    possible, disk = "first" if first else "yes", format_bytes(option["disk_bytes"])
    return f"  {option['delivery']:<11} {possible:<8} {startup:>11} {moved:>8} {usd:>10} {disk:>8}"


def _rule_lines(name: str, rules: list[dict[str, str]]) -> Iterator[str]:
    for rule in rules:
        mark = _EFFECTS[rule["effect"]]
        text = f"{mark} {rule['rule']} {rule['sentence']} ({rule['source']})"
        yield from wrapped(text, f"  {name:<11} ", " " * 16)
        name = ""
