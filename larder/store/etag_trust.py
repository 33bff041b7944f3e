"""What a process has learned of the etags of a store; `larder.store.etags` says why."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["EtagTrust", "etag_trust"]

_SEVERAL = 16


class EtagTrust:
    """What a process has learned of the etags of a store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._agreed = False
        self._odd = 0

    @property
    def _misleading(self) -> bool:
        """One odd etag tells enough of a store of which none agreed; of others, several do."""
        return self._odd >= (_SEVERAL if self._agreed else 1)

    def agreed(self) -> None:
        """An etag was the md5 of the bytes that came."""
        self._agreed = True

    def explain(self, read_again: Callable[[], None]) -> None:
        """An etag with the form of an md5 was not that of the bytes that came: see why.

        Of objects that arrive at the same time one is read again, and the others wait for what
        comes of it.

        Args:
            read_again: Reads the object once more, and raises if other bytes come.
        """
        if self._misleading:
            return
        with self._lock:
            if not self._misleading:
                read_again()
                self._odd += 1


_TRUSTS: dict[tuple[str | None, ...], EtagTrust] = {}
_TRUSTS_LOCK = threading.Lock()


def etag_trust(*place: str | None) -> EtagTrust:
    """That of a place, such as a bucket of an endpoint: the same one for the whole process."""
    with _TRUSTS_LOCK:
        return _TRUSTS.setdefault(place, EtagTrust())
