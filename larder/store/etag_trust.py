"""A process's knowledge about a store's etags: whether an etag that looks like an MD5 is one.

An object does not show whether its etag is an MD5, so an object whose etag differs is read twice.
If both reads agree, the bytes are the store's, and this process ignores differing etags of the
store from then on. Only the length and the connection's own checks (TLS) then detect a damaged
transfer, as for every multipart object. A matching etag still proves its object. If etags matched
before, a single mismatch (a file damaged on the server's disk, or the only encrypted object) proves
nothing about others: several have to differ first.
"""

from __future__ import annotations

from collections.abc import Callable

from larder.forking import lock_of_process

_SEVERAL = 16


class EtagTrust:
    def __init__(self) -> None:
        self._lock = lock_of_process()
        self._agreed = False
        self._odd = 0

    @property
    def misleading(self) -> bool:
        """Whether etags prove nothing: after one mismatch if none matched, else after several."""
        return self._odd >= (_SEVERAL if self._agreed else 1)

    def agreed(self) -> None:
        """Record that an etag was the MD5 of the received bytes."""
        self._agreed = True

    def explain(self, read_again: Callable[[], None]) -> None:
        """Find out why an etag with the form of an MD5 did not match the received bytes.

        ``read_again`` raises an error if the bytes of a second reading differ. If several objects
        arrive at the same time, one is read again and the others wait for the result.
        """
        if self.misleading:
            return
        with self._lock:
            if not self.misleading:
                read_again()
                self._odd += 1


_TRUSTS: dict[tuple[str | None, ...], EtagTrust] = {}
_TRUSTS_LOCK = lock_of_process()


def etag_trust(*place: str | None) -> EtagTrust:
    """Return the process's `EtagTrust` of a place, such as a bucket at an endpoint."""
    with _TRUSTS_LOCK:
        return _TRUSTS.setdefault(place, EtagTrust())
