"""What a process learns about a store's etags: whether those that look like an MD5 are one.

The object alone does not tell that its etag is not an MD5, so the first object whose etag differs
is read twice. If both reads agree, they are what the store has, and from then on this process
ignores differing etags of that store. A damaged transfer is then found only by its length and by
the connection's own checks (TLS), as for every multipart object. Etags that match still prove their
object. If some etags matched before, a single mismatch (a file damaged on the server's disk, or the
only encrypted object) says nothing about the others: several have to differ first.
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
        """An etag was the MD5 of the bytes received."""
        self._agreed = True

    def explain(self, read_again: Callable[[], None]) -> None:
        """An etag with the form of an MD5 did not match the bytes received: find out why.

        ``read_again`` raises an error if the bytes of a second reading differ.

        If several objects arrive at the same time, one is read again and the others wait for the
        result.
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
    """The `EtagTrust` of a place, such as a bucket at an endpoint; one per process."""
    with _TRUSTS_LOCK:
        return _TRUSTS.setdefault(place, EtagTrust())
