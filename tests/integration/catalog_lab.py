"""Tags, leases and cleans of a dataset of `pipeline_lab`, as their commands do them."""

from typing import Any

from pipeline_lab import DOCUMENT, Lab, png

from larder.catalog.cleaning import CleanSettings, clean
from larder.catalog.due import read_policy
from larder.catalog.leasing import lease
from larder.catalog.stored_dataset import StoredDataset
from larder.catalog.tagging import TagSettings, tag
from larder.jobs.step_runner import InlineRunner
from larder.progress import StageTimes


def place_of(lab: Lab) -> StoredDataset:
    settings = lab.settings()
    return StoredDataset(settings.dataset.name, settings.cluster)


def runner() -> InlineRunner:
    return InlineRunner(2, StageTimes())


def tagged(lab: Lab, *names: str, **options: Any) -> DOCUMENT:
    return tag(TagSettings(place_of(lab), *names, **options), runner())


def cleaned(
    lab: Lab,
    keep: int = 1,
    grace: str = "0h",
    *,
    older: str = "0h",
    mirror: bool = False,
    described: bool = True,
    plan_only: bool = False,
) -> DOCUMENT:
    dataset = lab.settings().dataset if described else None
    settings = CleanSettings(place_of(lab), read_policy(keep, older, grace), mirror, dataset)
    return clean(settings, runner(), plan_only=plan_only)


def leased(lab: Lab, *chosen: Any, **options: Any) -> DOCUMENT:
    return lease(place_of(lab), *chosen, **options)


def drop_all(lab: Lab) -> None:
    """End all leases, which configs of every version have."""
    leased(lab, drop=[each["name"] for each in leased(lab)["leases"]])


def grown(lab: Lab, versions: int = 3) -> list[str]:
    """So many versions, of which each adds to the one before; their configs have no leases."""
    ids = []
    for number in range(versions):
        lab.add({f"a/new{number}.png": png(50 + number)})
        ids.append(lab.prepare()["version"])
    drop_all(lab)
    return ids
