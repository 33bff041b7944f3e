"""Whether the source's objects are copied to the storage first. Pure.

======  =====================  ===========  ======
mirror  source                 read again?  mirror
======  =====================  ===========  ======
true    any                    --           yes
false   any                    --           no
auto    a directory            --           no
auto    beside the storage     --           no
auto    its region is unknown  --           no
auto    elsewhere              no           no
auto    elsewhere              yes          yes
======  =====================  ===========  ======

*Elsewhere* is another region, provider or server (`larder.copy.site.distance`). A directory
costs nothing to read again, wherever the storage is.

*Read again*: the samples of a published version are packed and cached again from its shards,
whatever changes: the shape, the cache, the policy for removals, a compaction. Neither the source
nor the mirror is read for that. Objects are read a second time only if a run ends after it has read
them and before it publishes them, and the next one is of other inputs, so that it cannot use the
shards that were finished. That is what a bad image does: images are checked (``validate``), one
that is bad ends the run (``on_bad_sample: fail``), and once it is replaced or excluded, the segment
is another one and every object is read again: from the mirror if there is one, else across regions.
Images that are transformed (``shards.images``) are another reason: other options, or other
libraries, start from the objects again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from larder.config.models import Cluster, Dataset
from larder.copy.site import Site, distance


@dataclass(frozen=True, slots=True)
class MirrorChoice:
    wanted: bool
    reason: str


def choose_mirror(
    setting: bool | Literal["auto"],
    source: Site,
    storage: Site,
    *,
    read_again: bool,
    because: str = "a bad image would have every object read again",
) -> MirrorChoice:
    """Choose according to the table above; ``because`` says why objects may be read again."""
    if setting != "auto":
        return MirrorChoice(setting, f"mirror is {str(setting).lower()}")
    apart = distance(source, storage)
    if apart == "beside":
        return MirrorChoice(False, "the source is beside the storage")
    if source.provider in ("file", "memory"):
        return MirrorChoice(False, "the source is on this machine, and costs nothing to read again")
    if apart == "unknown":
        reason = "the regions of the source and of the storage are not both given"
        return MirrorChoice(False, reason)
    if not read_again:
        return MirrorChoice(False, "every object is read only once")
    on_machine = storage.provider in ("file", "memory")
    place = "on this machine" if on_machine else f"at {storage.name}"
    places = f"the source is at {source.name} and the storage {place}"
    return MirrorChoice(True, f"{places}, and {because}")


def is_read_again(*, validate: str, on_bad_sample: str, images: int) -> bool:
    """Whether a run may end after it has read objects and before it publishes them."""
    return validate != "none" and on_bad_sample == "fail" and images > 0


def mirror_choice(dataset: Dataset, cluster: Cluster, *, images: int) -> MirrorChoice:
    """Whether a run of a dataset on a cluster has a mirror, and why.

    ``images`` is the number of images among the objects.
    """
    if dataset.source.expands:  # a dataset file cannot ask for a mirror as well
        reason = "what is in archives and tables is read from these, which are not copied"
        return MirrorChoice(False, reason)
    again = is_read_again(
        validate=dataset.validate_, on_bad_sample=dataset.on_bad_sample, images=images
    )
    source, storage = Site.of(dataset.source), Site.of(cluster.storage)
    if dataset.shards.images and images:
        because = "images are transformed, from the objects again if the options change"
        return choose_mirror(dataset.mirror, source, storage, read_again=True, because=because)
    return choose_mirror(dataset.mirror, source, storage, read_again=again)


def mirrors(dataset: Dataset, cluster: Cluster) -> bool:
    """Whether a run may have a mirror, before its samples are known; of a job, if it has one."""
    return mirror_choice(dataset, cluster, images=1).wanted


def resolved(dataset: Dataset, choice: MirrorChoice) -> Dataset:
    """The dataset for a job, which says whether there is a mirror."""
    return dataset.model_copy(update={"mirror": choice.wanted})
