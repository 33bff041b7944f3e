"""Whether a run copies the source's objects to the storage first. Pure.

`larder.copy.choice` has the rule. A plan decides once it knows the samples; the dataset in a
job says true or false, so that every step, on whatever machine, follows the plan.
"""

from __future__ import annotations

from larder.config.models import Cluster, Dataset
from larder.copy.choice import MirrorChoice, choose_mirror, is_read_again
from larder.copy.site import Site


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
