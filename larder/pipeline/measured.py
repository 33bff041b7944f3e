"""How fast earlier runs copied to this storage, for the next plan's time.

One small document below the dataset's root, *work/measured.json*, written when a run has copied
enough to tell. It is a hint: if it is missing or unreadable, a plan says no time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass

from larder.config.models import Cluster, Dataset
from larder.copy.site import Site
from larder.errors import LarderError
from larder.jobs.results import Totals
from larder.pipeline.job import Job, open_root
from larder.store import object_url
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import seal, unseal
from larder.versions.publish import read_optional

ENOUGH = Totals(1_000, 64_000_000)
"""A copy of fewer objects and fewer bytes says little about the next one."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A copy that was made.

    ``source`` and ``storage`` are their names in plans: another pair has another pace.
    """

    objects: int
    bytes: int
    seconds: float
    source: str
    storage: str

    def expected_seconds(self, copies: Totals) -> float:
        """How long other copies take: as their bytes or their number did, whichever is longer."""
        return self.seconds * max(copies.bytes / self.bytes, copies.count / self.objects)


def read_measured(root: Store, dataset: Dataset, cluster: Cluster) -> Measured | None:
    """What an earlier run measured between these places, if anything."""
    key = layout.MEASURED_KEY
    with suppress(LarderError, TypeError):
        data = read_optional(root, key)
        if data is None:
            return None
        plain = unseal(data, object_url(root.url, key))
        found = Measured(**{name: plain[name] for name in Measured.__slots__ if name in plain})
        numbers = (found.objects, found.bytes, found.seconds)
        valid = all(isinstance(each, (int, float)) and each > 0 for each in numbers)
        if valid and (found.source, found.storage) == _places(dataset, cluster):
            return found
    return None


def write_measured(job: Job, copied: Totals, seconds: float) -> None:
    """Write down how fast a run has copied, if it was enough; a store's refusal does not matter."""
    enough = copied.count >= ENOUGH.count or copied.bytes >= ENOUGH.bytes
    if enough and copied.bytes and seconds > 0:
        places = _places(job.dataset, job.cluster)
        measured = Measured(copied.count, copied.bytes, seconds, *places)
        with suppress(LarderError):
            open_root(job).put(layout.MEASURED_KEY, seal(asdict(measured)))


def _places(dataset: Dataset, cluster: Cluster) -> tuple[str, str]:
    return Site.of(dataset.source).name, Site.of(cluster.storage).name
