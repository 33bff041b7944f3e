"""Keeps secrets of Prefect's configuration out of messages: passwords, keys, parts of URLs.

`larder.config.urls` refuses secrets in the configuration and in templates; `larder.store.calls`
hides secrets in the answers of stores.
"""

from __future__ import annotations

import base64
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from larder.errors import ConfigError, FatalError, LarderError

_MASK = "***"
_SHORTEST = 4
"""A shorter secret would be found in ordinary words."""
_USER = re.compile(r"(?P<scheme>\b[a-zA-Z][\w+.-]*://)[^\s/?#'\"<>]*@")
_QUERY = re.compile(r"(?P<url>\b[a-zA-Z][\w+.-]*://[^\s'\"<>?#]*)[?#][^\s'\"<>]*")


def without_auth(url: str) -> str:
    """Return a URL, or a text with URLs, without user, password, query and fragment."""
    return _QUERY.sub(r"\g<url>", _USER.sub(r"\g<scheme>", url))


def auth_of(url: str, *, where: str) -> tuple[str, str]:
    """Split a URL into the URL without credentials, and ``user:password``, which may be empty.

    ``config.invalid_value``, at ``where``: not the URL of a server; the URL is not shown.
    """
    try:
        parts = urlsplit(url)
        valid = not url or (
            parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        )
    except ValueError:
        valid = False
    if not valid or "@" in parts.path:
        hint = "write it as http://HOST:4200/api; in a password, / and @ are %2F and %40"
        raise ConfigError("config.invalid_value", "not a server's URL", where=where, hint=hint)
    pair, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), unquote(pair)


class Hidden:
    """Removes secrets from text: configured values, and the password in ``user:password``."""

    def __init__(self, secrets: Iterable[str]) -> None:
        values = set(filter(None, secrets))
        values |= {secret.partition(":")[2] for secret in values}
        values |= {quote(secret, safe="") for secret in values}
        values |= {base64.b64encode(secret.encode()).decode() for secret in values}
        self._secrets = sorted(filter(lambda value: len(value) >= _SHORTEST, values), key=len)[::-1]

    def __call__(self, text: str) -> str:
        """Remove secrets from a text, and the parts of its URLs before the host or after ``?``."""
        text = without_auth(text)
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return text

    def shown_in(self, text: str) -> bool:
        return bool(_USER.search(text)) or any(secret in text for secret in self._secrets)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Raise ``run.server`` instead of an error whose text or traceback contains a secret."""
        try:
            yield
        except Exception as error:
            if not self.shown_in("".join(traceback.format_exception(error))):
                raise
            if isinstance(error, LarderError) and not self.shown_in(str(error)):
                raise error from None  # the secret is in its cause
            message = self(f"Prefect fails: {type(error).__name__}: {error}")
            raise FatalError("run.server", message, hint="see PREFECT_API_URL") from None
