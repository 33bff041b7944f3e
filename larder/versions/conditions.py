"""Whether a store keeps the conditions of conditional writes: asked once, and written down.

Some servers that speak S3 ignore ``If-None-Match`` and ``If-Match`` and overwrite, others refuse
them. Only trying tells. A run that is about to write tries it once for each dataset, and keeps the
answer in ``work/conditions.json`` below the dataset's root, which is also the object that it tries
it with: until the answer is known, the document has none. Two runs that ask at the same time get
the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from larder.errors import DamageError, PreconditionError, StoreError
from larder.store import object_url
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import MAKE_AGAIN, seal, unseal
from larder.versions.publish import own_file_errors, read_optional

_NO_ETAG = "0" * 32
"""An etag that no object has: not even the MD5 of anything known is all zeros."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Which conditions of `larder.store.base.Store.put` a store keeps.

    Attributes:
        if_absent: An object that exists is not overwritten.
        if_match: An object with another etag is not overwritten.
    """

    if_absent: bool
    if_match: bool

    @property
    def kept(self) -> bool:
        return self.if_absent and self.if_match


KEPT = Conditions(if_absent=True, if_match=True)
"""A store that keeps both, such as a directory, Amazon S3 or Ceph."""


def read_conditions(root: Store) -> Conditions | None:
    """What is known about a store, or None if no run has asked it yet."""
    key = layout.conditions_key()
    data = read_optional(root, key)
    if data is None:
        return None
    where = object_url(root.url, key)
    plain = unseal(data, where)
    if "asking" in plain:  # the run that asked was killed, or has not finished yet
        return None
    answers = (plain.get("if_absent"), plain.get("if_match"))
    if not all(isinstance(answer, bool) for answer in answers):
        raise DamageError("damage.manifest", "invalid field", where=where, hint=MAKE_AGAIN)
    return Conditions(*map(bool, answers))


def probe_conditions(root: Store) -> Conditions:
    """What is known about a store; if nothing is, try it, and write the answer down."""
    known = read_conditions(root)
    if known is not None:
        return known
    key = layout.conditions_key()
    with own_file_errors():
        root.put(key, seal({"asking": "nothing"}))
        found = Conditions(
            if_absent=_refused(lambda: root.put(key, seal({"asking": "absent"}), if_absent=True)),
            if_match=root.features.replace_if_match
            and _refused(lambda: root.put(key, seal({"asking": "match"}), if_match=_NO_ETAG)),
        )
        root.put(key, seal(found))
    return found


def _refused(write: Callable[[], object]) -> bool:
    """Whether a write is refused because its condition does not hold.

    It writes something else than what is there: a store that retries would take its own bytes for
    its own write.
    """
    try:
        write()
    except PreconditionError:
        return True
    except StoreError as error:
        if error.code not in ("store.refused", "store.unconditional"):
            raise
    return False
