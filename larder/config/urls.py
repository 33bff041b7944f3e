"""URLs of stores and servers, their rules and places, and access to stores.

The rules apply wherever a URL is given: files, flags, environment variables, profiles, arguments.
A credential is recognised by its looks, and no message repeats any part of a credential.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from larder.errors import ConfigError

_PLAIN = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{1,64}")

_SIGNED = re.compile(
    r"(?i:x-(?:amz|goog)-(?:signature|credential|security-token)\s*(?:=|%3d))"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bGOOG1?[A-Z0-9]{20}(?:[A-Z0-9]{36})?\b"
)
"""Parameters of presigned URLs, and access keys: nothing else looks like these, not even paths."""

_SIGNING_PARAMETER = re.compile(
    r"access_key|access_token|accesskeyid|api_?key|auth|auth_token|authorization"
    r"|aws_access_key_id|aws_secret_access_key|awsaccesskeyid|client_secret|credentials?"
    r"|googleaccessid|key-pair-id|ossaccesskeyid|passwd|password|pwd|sas|secret|secret_key"
    r"|security-token|session_token|sig|signature|token"
)

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
    r"(?:(?<=//)|(?<![A-Za-z0-9+/]))(?=[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/]))"
    r"(?=[a-z0-9+/]*[A-Z])(?=[A-Za-z+/]*[0-9])"
    r"(?:[A-Za-z0-9+/]*?(?<![a-z])[a-z](?![a-z])){2}"  # in words, letters stand together
    r"|\b(?:(?:gh[pousr]|hf)_(?!x{4})[A-Za-z0-9]{30}|github_pat_[A-Za-z0-9]{20}"
    r"|glpat-[A-Za-z0-9_-]{20}|xox[abprs]-[0-9]{6}|eyJ[A-Za-z0-9_-]{6,}\.eyJ)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
)

_NAME = (
    r"(?<!no)(?<!NO)(?i:pass(?:word|wd|phrase)|secret[-_](?:access[-_])?key|client[-_]secret"
    r"|api[-_]?key)"
)
_WRITTEN_OUT = (
    r"(?!(?i:null|none|true|false|yes|no|required|optional)\b"
    r"|[A-Z_]+\b"  # a variable's name, or a placeholder
    r"|[a-z_]+[.(\[:/]"  # an expression, or the address or path of a secret
    r"|%s)[A-Za-z0-9]"
)
_SENTENCE = r"[A-Za-z]+ [A-Za-z]"
_WORDS = (
    r"[a-z_]+=|(?:an?|and|as|at|before|by|for|from|if|in|is|may|must|not|of|on|or|so|that|the|to"
    r"|when|which|with)(?![\w-])"
)

_NAMED = re.compile(
    rf"{_NAME}[\"']?[ \t]*[:=][ \t]*[\"']?{_WRITTEN_OUT % _SENTENCE}"
    r"|(?<![\w-])--?(?!(?:no|use|ask|prompt|with|without|require|allow|skip|disable|enable)[-_])"
    rf"(?:(?:[\w.]+-)*[\w.]*?{_NAME}|(?i:(?:(?:access|api|auth|hf|hub|session)[-_])?token))"
    rf"(?:[ \t=,\"']|\\\s*\n)+{_WRITTEN_OUT % _WORDS}"
)
"""A value that is written out after such a name, as in YAML, JSON and shell, or after a flag."""

_PASSWORD = re.compile(r"://[^/\s:@\"',]*:(?![$<{*%\"']|[A-Z_]+@)[^/\s@\"',]+@(?!sha256:)")
"""A password in a URL; neither a variable nor the tag of an image."""


_USER_OF_PATH = re.compile(r"\s*(?://)?[^/:@]*:[^/@]+@[^/]*")
"""A user at the beginning of a path, which may be a URL that has lost its scheme."""


def holds_url_with_credentials(text: str) -> bool:
    """Whether a string contains a URL with a user in it, or a presigned URL."""
    return _USER.search(text) is not None or is_signed(text)


def may_be_key(text: str) -> bool:
    """Whether a name looks like an access key, a secret, a token or a private key.

    Secrets of AWS and of HMAC keys have 40 letters of base64 in one piece, but names do not.
    """
    return is_signed(text) or _KEY.search(text) is not None


def secret_at(text: str) -> int | None:
    """Return the line, from 0, that seems to contain a key, a token or a password."""
    found = [each.search(text) for each in (_SIGNED, _KEY, _NAMED, _PASSWORD)]
    return min((text.count("\n", 0, each.start()) for each in found if each), default=None)


def is_signed(url: str) -> bool:
    """Whether a URL or path has marks that only presigned URLs and access keys have."""
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
    """Whether a query has a parameter that is named like a credential."""
    _, mark, query = rest.partition("?")
    if not mark:
        return False
    for parameter in re.split(r"[&;?#]", query):
        name, equals, value = parameter.partition("=")
        if equals and value and _SIGNING_PARAMETER.fullmatch(unquote(name).strip().lower()):
            return True
    return False


def shown(text: str) -> str:
    """Quote a text for a message; empty if the text is long or may be a credential."""
    if not _PLAIN.fullmatch(text) or _CREDENTIALS.search(text):
        return ""
    return repr(text)


_PARTITIONS = {
    "cn-": "amazonaws.com.cn",
    "eu-isoe-": "cloud.adc-e.uk",
    "eusc-": "amazonaws.eu",
    "us-gov-": "amazonaws.com",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "us-isof-": "csp.hci.ic.gov",
}
"""AWS' partitions besides the commercial partition: start of a region, and end of a server."""

_CLOUDS = {
    **{f".{suffix}": "aws" for suffix in ("amazonaws.com", "api.aws", *_PARTITIONS.values())},
    ".googleapis.com": "gcp",
}
"""Clouds by the end of a server's name."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_ONE_SLASH = re.compile(r"(s3|gs|gcs|file|https?|ftp):", re.IGNORECASE)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", re.IGNORECASE)
_GCS_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_UNPRINTED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NOWHERE_IN_A_URL = re.compile(r"[\s\\?#\"<>^`{|}]")

NO_CREDENTIALS = "a URL must not contain credentials"
_STORES = "use s3://, gs://, file:// or a path"
EXAMPLES = {
    "s3": "write s3://bucket/prefix",
    "gs": "write gs://bucket/prefix",
    "file": "write file:///dir, or the path alone",
}
"""The schemes of stores, and how their URLs are written."""

_S3_BUCKET = "write s3://BUCKET/PREFIX, where BUCKET has 3 to 63 letters, digits, . - and _"
_GS_BUCKET = "write gs://BUCKET/PREFIX, where BUCKET has lower-case letters, digits, . - and _"
_SERVERS = "write http://HOST:PORT or https://HOST"


_ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "gs": ("STORAGE_EMULATOR_HOST",),
}
"""Environment variables with the URL of a server other than the cloud's, in order of precedence."""


class StoreUrl(NamedTuple):
    """A parsed URL.

    Attributes:
        scheme: In lower case; empty for a plain path.
        rest: The literal text after ``scheme://``, or a plain path.
    """

    scheme: str
    rest: str

    @property
    def bucket(self) -> str:
        return self.rest.partition("/")[0]

    @property
    def prefix(self) -> str:
        return self.rest.partition("/")[2]

    @property
    def is_directory(self) -> bool:
        """Whether it is a path, plain or as ``file://``."""
        return self.scheme in ("", "file")


def parse_url(url: str) -> StoreUrl:
    """Parse a URL; a text without ``scheme://`` is a path. Nothing is percent-decoded."""
    match = _SCHEME.fullmatch(url)
    return StoreUrl(match[1].lower(), match[2]) if match else StoreUrl("", url)


def check_url(url: str, *, where: str = "") -> None:
    """Refuse a text that is no URL of a store; the error names ``where``, never the URL itself.

    Prefixes and paths are literal: a ``?`` in them is an ordinary character, unless a parameter
    with the name of a credential follows.
    """
    parts = parse_url(url.lstrip())
    if is_signed(url) or holds_url_with_credentials(url):
        raise _secret(where)
    if not parts.scheme:
        _check_path(url, where)
    elif holds_credentials(*parts):
        raise _secret(where)
    if not url.strip() or url == "file://":
        raise ConfigError("config.path", "the directory is missing", where=where, hint=_STORES)
    _check_text(url, where)
    fault = _fault(parts, url)
    if fault:
        code = "config.unsupported_url" if url == url.lstrip() else "config.invalid_value"
        raise ConfigError(code, fault[0], where=where, hint=fault[1])


def _fault(url: StoreUrl, text: str) -> tuple[str, str] | None:
    """Find the mistake in a URL, if any; returns a message and a hint."""
    scheme, bucket, slash = url.scheme, url.bucket, None if url.scheme else _ONE_SLASH.match(text)
    name = f"invalid bucket name {bucket!r}" if shown(bucket) else "invalid bucket name"
    meant = (slash[1].lower() if slash else scheme).replace("gcs", "gs")
    rules = (
        (bool(scheme) and text != text.lstrip(), "the URL begins with a space", "remove it"),
        (slash is not None, "// is missing after the scheme", EXAMPLES.get(meant, _STORES)),
        (
            scheme in ("s3", "gs") and url.prefix.endswith("/") and text.endswith("//"),
            "the URL ends in //, as if keys began with /",
            "end it in one /; source.include: /** takes only keys that begin with /",
        ),
        (scheme == "s3" and not _BUCKET.fullmatch(bucket), name, _S3_BUCKET),
        (scheme == "gs" and not _GCS_BUCKET.fullmatch(bucket), name, _GS_BUCKET),
        (
            scheme == "file" and not url.rest.startswith("/"),
            "a file URL needs an absolute path and no host",
            EXAMPLES["file"],
        ),
        (
            scheme not in ("", *EXAMPLES),
            f"unsupported scheme {scheme}://",
            EXAMPLES.get(meant, _STORES),
        ),
    )
    return next(((message, hint) for broken, message, hint in rules if broken), None)


def check_endpoint(endpoint: str, *, where: str = "") -> None:
    """Refuse a text that is no URL of a server: a host, with or without a port and a path."""
    scheme, rest = parse_url(endpoint.strip())
    if "@" in rest or is_signed(rest) or signs(rest):
        raise _secret(where)
    _check_text(endpoint, where)
    if scheme not in ("", "http", "https"):
        message, code = f"unsupported scheme {scheme}:// for a server", "config.unsupported_url"
        raise ConfigError(code, message, where=where, hint=_SERVERS)
    if not _is_server(endpoint):
        message = "not the URL of a server"
        raise ConfigError("config.invalid_value", message, where=where, hint=_SERVERS)


def _is_server(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        port, host = parts.port, parts.hostname or ""
        if parts.netloc.startswith("["):
            ipaddress.IPv6Address(host)
    except ValueError:
        return False
    if not parts.scheme or port == 0 or parts.netloc.endswith(":"):
        return False
    if _NOWHERE_IN_A_URL.search(endpoint):
        return False
    named = _HOST.fullmatch(host) is not None and ".." not in host and len(host) < 254
    return named or parts.netloc.startswith("[")


def _check_text(text: str, where: str) -> None:
    """Refuse a string that does not fit on one line of a file."""
    if _UNPRINTED.search(text):
        message = "contains a control character, or is not valid UTF-8"
        raise ConfigError("config.invalid_value", message, where=where, hint="remove it")


def _check_path(path: str, where: str) -> None:
    """Refuse a path that begins like a URL with a user, unless a file has that name."""
    user = _USER_OF_PATH.match(path)
    if user and not os.path.lexists(user[0]):
        raise _secret(where, "use the AWS chain or a profile, or write ./ before a path")


def _secret(where: str, hint: str = "use the AWS chain or a profile") -> ConfigError:
    return ConfigError("config.secret", NO_CREDENTIALS, where=where, hint=hint)


def environment_endpoint(provider: str, environ: Mapping[str, str]) -> str:
    """Return the server that the environment names for ``s3`` or ``gs``, or an empty string."""
    name = next(filter(environ.get, _ENDPOINT_VARIABLES.get(provider, ())), "")
    endpoint = environ.get(name, "")
    if provider == "gs" and endpoint and "://" not in endpoint:  # Google's libraries accept it
        endpoint = f"http://{endpoint}"
    if endpoint:
        check_endpoint(endpoint, where=f"environment variable {name}")
    return endpoint


def check_region(region: str, *, where: str = "") -> None:
    """Refuse an invalid region name: it becomes part of a host name."""
    if not _REGION.fullmatch(region):
        message, hint = "not a valid region", "write a region such as us-west-2"
        raise ConfigError("config.invalid_value", message, where=where, hint=hint)


def partition_of(region: str) -> str:
    """Return the start of regions in the same AWS partition; empty for the commercial one."""
    return next((start for start in _PARTITIONS if region.startswith(start)), "")


def s3_server(region: str) -> str:
    return f"https://s3.{region}.{_PARTITIONS.get(partition_of(region), 'amazonaws.com')}"


def cloud_of(endpoint: str) -> str:
    """Return ``aws`` or ``gcp`` for a server of that cloud, such as in a VPC; otherwise empty."""
    host = f".{(urlsplit(endpoint).hostname or '').lower()}"
    return next((cloud for end, cloud in _CLOUDS.items() if host.endswith(end)), "")


def server_of(endpoint: str) -> str:
    """Return one name for all spellings of a server: ``localhost:9000``; empty for AWS, Google."""
    parts = urlsplit(endpoint)
    host = (parts.hostname or "").rstrip(".")
    if cloud_of(f"//{host}"):
        return ""
    try:
        address = ipaddress.ip_address(host)
        host = "localhost" if address.is_loopback else address.compressed
    except ValueError:
        host = "localhost" if host.endswith(".localhost") else host
    port = parts.port or (443 if parts.scheme.lower() == "https" else 80)
    return f"{host}:{port}{parts.path.rstrip('/')}"


GIVE_UP_SECONDS = 120.0
_SILENT_SHARE = 0.45


class Access(NamedTuple):
    """Access to a store. Credentials are named, never included.

    Attributes:
        endpoint: URL of an S3-compatible server other than AWS, or of a server that imitates GCS.
        role: ARN of the IAM role to assume.
        block: ``KIND/NAME`` of the Prefect block with the credentials.
        anonymous: Whether requests are not signed, for a public bucket.
        kms_key: The key that encrypts written objects; None leaves encryption to the bucket.
        project: The GCS project that is billed.
        give_up_seconds: A call fails after this long without an answer, including its repetitions.
    """

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    role: str | None = None
    block: str | None = None
    anonymous: bool = False
    requester_pays: bool = False
    kms_key: str | None = None
    project: str | None = None
    give_up_seconds: float = GIVE_UP_SECONDS

    @property
    def silence_seconds(self) -> float:
        """Seconds to wait for a byte of an answer: a call that hangs is repeated once."""
        return _SILENT_SHARE * self.give_up_seconds


DEFAULT_ACCESS = Access()


_STORE = re.compile(r"(?:s3|gs|gcs|file|https?|ftp):/", re.IGNORECASE)
"""The beginning of a URL that has lost a slash."""


def resolve_url(url: str, base: Path) -> str:
    """Make a plain path absolute, without ``..``, links kept; other URLs stay.

    Relative paths start from ``base``, which for dataset and cluster files is the current
    directory, not the directory of the file. ``~/data`` starts from the home directory.
    """
    if parse_url(url).scheme:
        return url
    return os.path.abspath(base / _at_home(Path(url)))


def directory(path: str | Path, flag: str) -> Path:
    """Return the directory of this machine that a flag names, with ``~`` expanded.

    A shell expands it in ``--output ~/x``, but not in ``--output=~/x``. Relative paths stay
    relative. The URL of a store is refused, and so is a path with credentials, which would become
    part of names.
    """
    text, hint = str(path), "name a directory of this machine"
    _check_path(text, flag)
    if holds_url_with_credentials(text):
        raise ConfigError("config.secret", NO_CREDENTIALS, where=flag, hint=hint)
    if _STORE.match(text):
        raise ConfigError("config.path", "a URL is not allowed here", where=flag, hint=hint)
    return _at_home(Path(path), flag)


def _at_home(path: Path, where: str = "") -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        hint = "write the full path, or ./ before a name that begins with ~"
        message = "no such home directory"
        raise ConfigError("config.path", message, where=where, hint=hint) from None


def check_overlap(
    source_url: str,
    storage_url: str,
    *,
    source_endpoint: str | None = None,
    storage_endpoint: str | None = None,
) -> None:
    """Refuse a source inside the storage, or the reverse, with ``config.overlap``.

    Otherwise the next run would list Larder's files as part of the source, or overwrite the source.
    Directories are compared by their real paths, buckets by whole segments of the prefix:
    ``s3://b/data`` and ``s3://b/database`` do not overlap. Buckets at different
    endpoints never do; the caller has to fill in an endpoint that comes from the environment.
    """
    source_segments = _segments(source_url, source_endpoint)
    storage_segments = _segments(storage_url, storage_endpoint)
    shorter = min(len(source_segments), len(storage_segments))
    if source_segments[:shorter] != storage_segments[:shorter]:
        return
    message = f"the source {source_url} and the storage {storage_url} overlap"
    hint = "give one of them a prefix or directory of its own"
    raise ConfigError("config.overlap", message, where="source.url", hint=hint)


def is_inside(url: str, outer: str) -> bool:
    """Whether a URL or path equals ``outer``, or is inside of ``outer``."""
    segments = _segments(outer)
    return _segments(url)[: len(segments)] == segments


def _segments(url: str, endpoint: str | None = None) -> tuple[str, ...]:
    """Split a place into segments; any place around it has the first of these segments.

    URLs are taken literally, without percent-decoding, as in `larder.store.open_store`.
    """
    scheme, rest = parse_url(url)
    if not scheme:
        return _directory(os.path.expanduser(rest))
    if scheme == "file":
        return _directory(rest)
    segments = (segment for segment in rest.split("/") if segment)
    return (scheme, server_of(endpoint) if endpoint else "", *segments)


def _directory(path: str) -> tuple[str, ...]:
    return ("file", *Path(os.path.normcase(os.path.realpath(path))).parts)
