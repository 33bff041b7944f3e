"""Which strings may be credentials, so that they are neither recorded nor shown. Pure."""

from __future__ import annotations

import re
from urllib.parse import unquote

_PLAIN = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{1,64}")

_SIGNED = re.compile(
    r"(?i:x-(?:amz|goog)-(?:signature|credential|security-token)\s*(?:=|%3d))"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bGOOG1?[A-Z0-9]{20}(?:[A-Z0-9]{36})?\b"
)
"""Parameters of presigned URLs, and access keys: nothing else looks like these, not even paths."""

_SIGNING_PARAMETERS = {
    "access_key",
    "access_token",
    "accesskeyid",
    "api_key",
    "apikey",
    "auth",
    "auth_token",
    "authorization",
    "aws_access_key_id",
    "aws_secret_access_key",
    "awsaccesskeyid",
    "client_secret",
    "credential",
    "credentials",
    "googleaccessid",
    "key-pair-id",
    "ossaccesskeyid",
    "passwd",
    "password",
    "pwd",
    "sas",
    "secret",
    "secret_key",
    "security-token",
    "session_token",
    "sig",
    "signature",
    "token",
}

_USER = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*:/"
    r"(?:/[^/\s]*|/?[^/\s:@]*:(?![0-9]{1,5}(?:/|\Z))[^\s@]*)@"
)
"""A user in a URL, which may have lost a slash; AWS secrets may contain slashes."""

_CREDENTIALS = re.compile(
    r"(?:AKIA|ASIA)[A-Z0-9]{8}"  # AWS access keys
    r"|[A-Za-z0-9+/]{30}"  # AWS secrets, and other long strings without a break
    r"|://[^/\s]*[@:][^/\s]*@|://[^/\s]*@"
    r"|(?:secret|password|passwd|token|signature|credential|api_?key)"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|eyJ[A-Za-z0-9_-]{6})"
    r"|-----BEGIN",
    re.IGNORECASE,
)


_KEY = re.compile(
    r"(?<![A-Za-z0-9+/=])(?=[^\s]*[a-z])(?=[^\s]*[A-Z])(?=[^\s]*[0-9])"
    r"[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/])"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|eyJ[A-Za-z0-9_-]{6})"
    r"|-----BEGIN|\"private_key"
)


def holds_url_with_credentials(text: str) -> bool:
    """Whether a string contains a URL with a user in it, or a presigned URL."""
    return _USER.search(text) is not None or is_signed(text)


def may_be_key(text: str) -> bool:
    """Whether a name is no name but an access key, a secret, a token or a private key.

    Secrets of AWS and of HMAC keys have 40 letters of base64, which no name has in one piece.
    """
    return is_signed(text) or _KEY.search(text) is not None


def is_signed(url: str) -> bool:
    """Whether a URL or path contains what only presigned URLs and access keys contain."""
    return _SIGNED.search(url) is not None


def holds_credentials(scheme: str, rest: str) -> bool:
    """Whether a URL has a user, a password, or signing parameters.

    An AWS secret may contain a slash, so that ``s3://KEY:SEC/RET@bucket`` seems to have the bucket
    ``KEY:SEC``: names of hosts and buckets have no colon, except before a port.
    """
    authority = rest.partition("/")[0]
    port = re.search(r":[0-9]{0,5}\Z", authority)
    host = authority[: port.start()] if port else authority
    if "@" in authority or (":" in host and not host.startswith("[")):
        return True
    return scheme != "file" and signs(rest)


def signs(rest: str) -> bool:
    """Whether a query has a parameter whose name is that of a credential."""
    _, mark, query = rest.partition("?")
    if not mark:
        return False
    for parameter in re.split(r"[&;?#]", query):
        name, equals, value = parameter.partition("=")
        if equals and value and unquote(name).strip().lower() in _SIGNING_PARAMETERS:
            return True
    return False


def shown(text: str) -> str:
    """``text`` in quotes, for a message; empty if it is long or may be a credential."""
    if not _PLAIN.fullmatch(text) or _CREDENTIALS.search(text):
        return ""
    return repr(text)
