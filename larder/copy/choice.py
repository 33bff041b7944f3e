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
