"""Locations of data: a bucket of S3, a bucket of Google Cloud Storage, or a directory.

The scheme of ``url`` decides about the kind of location, and about the other keys that are allowed.
Keys of another provider are accepted if null, empty or false, so that a file with variables fits a
bucket as well as a directory. No key ever contains a credential. Names, such as of a KMS key, are
not parsed: a run asks the store in its first seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from larder.config.config_document import UNREAD
from larder.config.models.field_types import (
    AnyGlobs,
    Delimiter,
    Endpoint,
    Flag,
    Globs,
    Model,
    Region,
    RuleError,
    Text,
    Url,
    with_fields,
)
from larder.config.urls import Access, environment_endpoint, may_be_key, parse_url, resolve_url
from larder.errors import ConfigError

_BLOCK_KINDS = {"s3": ("aws-credentials", "secret"), "gs": ("gcp-credentials", "secret")}
"""The kinds of Prefect blocks that may contain the credentials of a store."""

_BLOCK_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::([0-9]{12})?:role/[\w+=,.@/-]{1,512}", re.ASCII)
_BUCKET_KEYS = ("region", "endpoint", "block", "anonymous", "requester_pays", "kms_key")
_KEYS = {"s3": (*_BUCKET_KEYS, "profile", "role"), "gs": (*_BUCKET_KEYS, "project")}
_NOUNS = {"s3": "a bucket of S3", "gs": "a bucket of Google Cloud Storage"}


def _no_key(value: str) -> str:
    """Refuse a name that may be an access key, a secret or a token (``config.secret``)."""
    if may_be_key(value):
        hint = "name the credentials, and keep them where the name is looked up"
        raise RuleError("must not contain credentials", code="config.secret", hint=hint)
    return value


def _profile(value: str) -> str:
    if not value.isprintable() or "[" in value or "]" in value:
        raise RuleError("not the name of an AWS profile", hint="see ~/.aws/config")
    return value


def _role(value: str) -> str:
    if value and not _ROLE.fullmatch(value):
        hint = "write arn:aws:iam::ACCOUNT:role/NAME"
        raise RuleError("not the ARN of an IAM role", hint=hint)
    return value


def _check_block(value: str, provider: str) -> None:
    kind, _, name = value.partition("/")
    kinds = _BLOCK_KINDS[provider]
    if kind not in kinds or not _BLOCK_NAME.fullmatch(name):
        hint = f"write {' or '.join(f'{each}/NAME' for each in kinds)}"
        raise RuleError("not the KIND/NAME of a Prefect block with credentials", hint=hint)


_Name = Annotated[Text, AfterValidator(_no_key)]


class Location(Model):
    """A bucket prefix or a directory, and how to reach it."""

    url: Url = Field(description="s3://bucket/prefix, gs://bucket/prefix, file:///dir or a path")
    region: Annotated[Region, AfterValidator(_no_key)] | None = Field(
        None, description="region of the bucket: us-west-2 in S3; us-central1, or US in GCS"
    )
    endpoint: Endpoint | None = Field(
        None,
        description="URL of an S3-compatible server other than AWS, such as http://127.0.0.1:9000, "
        "or of a server that imitates GCS",
    )
    profile: Annotated[_Name, AfterValidator(_profile)] | None = Field(
        None, description="S3: profile in the AWS credentials file"
    )
    role: Annotated[_Name, AfterValidator(_role)] | None = Field(
        None, description="S3: ARN of an IAM role to assume: arn:aws:iam::123456789012:role/reader"
    )
    block: _Name | None = Field(
        None,
        description="Prefect block with the credentials: aws-credentials/NAME, "
        "gcp-credentials/NAME or secret/NAME",
    )
    anonymous: Flag = Field(
        False, description="whether the bucket is public, so that requests are not signed"
    )
    requester_pays: Flag = Field(
        False, description="whether to pay for requests to a bucket whose owner does not"
    )
    kms_key: _Name | None = Field(
        None,
        description="key that encrypts what is written: ID, ARN or alias of a KMS key, or "
        "projects/.../cryptoKeys/KEY in GCS",
    )
    project: _Name | None = Field(
        None, description="GCS: project that is billed, where the requester pays"
    )

    @property
    def provider(self) -> str:
        """``s3``, ``gs`` or ``file``."""
        return parse_url(self.url).scheme or "file"

    @property
    def access(self) -> Access:
        """Access to the store: the keys that are also fields of `Access`."""
        shared = type(self).model_fields.keys() & Access._fields
        return Access(**{name: getattr(self, name) for name in shared})

    @field_validator(*_BUCKET_KEYS, "profile", "role", "project")
    @classmethod
    def _of_provider(cls, value: Any, info: ValidationInfo) -> Any:
        """Whether a bucket or directory with this URL has the key; an empty string is null."""
        url, name = info.data.get("url", UNREAD), str(info.field_name)
        if not value or url == UNREAD:
            return False if isinstance(value, bool) else None
        provider = parse_url(url).scheme
        if name not in _KEYS.get(provider, ()):
            message = f"does not apply to {_NOUNS.get(provider, 'a directory')}"
            raise RuleError(message, hint="remove it, or set it to null", beside="url")
        if name == "block":
            _check_block(value, provider)
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        for name in ("profile", "role", "block", "requester_pays", "kms_key", "project"):
            if self.anonymous and getattr(self, name):
                message = f"requests that are not signed cannot have {name}"
                raise RuleError(message, key="anonymous", hint=f"remove anonymous or {name}")
        if self.block and self.profile:
            message = "credentials come from a profile or from a block, not both"
            raise RuleError(message, key="block", hint="remove block or profile")
        return self


RowFormat = Literal["jsonl", "csv", "text", "parquet"]

FORMATS: dict[str, RowFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".parquet": "parquet",
}
"""The format of a table by the end of its key."""

_RESERVED = ("cls", "json")


class TableRows(Model):
    """Tables whose rows are samples."""

    format: Literal["auto", "jsonl", "csv", "text", "parquet"] = Field(
        "auto",
        description="jsonl: JSON Lines; csv: with a header; text: lines; parquet; auto: by the "
        "extension",
    )
    files: Globs | None = Field(
        None, description="keys of the tables: one glob or a list; null: by their extension"
    )
    key: Text | None = Field(
        None,
        min_length=1,
        description="column or field that names the samples of a table; null: the row's number",
    )
    exclude: AnyGlobs = Field((), description="keys of rows to leave out: one glob or a list")
    delimiter: Delimiter | None = Field(
        None, description="what separates the fields of CSV; null: a comma, or a tab for .tsv"
    )
    columns: dict[Text, Text | None] = Field(
        {},
        description="of Parquet: columns that become parts of their own, with their extension, "
        "such as {image.bytes: jpg}; null leaves a column out",
    )

    @field_validator("columns")
    @classmethod
    def _extensions(cls, value: dict[str, str | None]) -> dict[str, str | None]:
        given = [ext for ext in value.values() if ext is not None]
        for ext in given:
            if not all(ext.split(".")) or "/" in ext or ext in _RESERVED:
                hint = "write it without a dot before it, as in jpg; json has the other columns"
                raise RuleError("not an extension", hint=hint, detail=repr(ext))
            if given.count(ext) > 1:
                raise RuleError("two columns with one extension", detail=repr(ext))
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.files is not None and self.format == "auto":
            message = "the format of all of them has to be named"
            raise RuleError(message, key="files", hint="set rows.format")
        for name, given, formats in (
            ("key", self.key, ("auto", "jsonl", "csv", "parquet")),
            ("delimiter", self.delimiter, ("auto", "csv")),
            ("columns", self.columns, ("auto", "parquet")),
        ):
            if given and self.format not in formats:
                message = f"does not apply to rows.format: {self.format}"
                raise RuleError(message, key=name, hint="remove it, or change rows.format")
        return self


class Report(Model):
    """A list of the objects in the source, instead of listing the bucket."""

    url: Url = Field(
        description="manifest.json of a report of S3 Inventory, the prefix of all its reports, or "
        "a table in CSV or Parquet: in the source's provider, or a path"
    )


class Source(Location):
    """Where the data lives, and which objects count."""

    include: Globs = Field(
        ("**",), description="keys to include: one glob or a list; * within a segment, ** across"
    )
    exclude: AnyGlobs = Field((), description="keys to exclude from those: one glob or a list")
    inventory: Report | None = Field(
        None, description="report that lists the objects; null: the source is listed"
    )

    archives: Literal["keep", "expand"] = Field(
        "keep",
        description="expand: the members of tar archives are objects, also those of archives in "
        "archives; keep: an archive is an object like any other",
    )
    rows: TableRows | None = Field(
        None, description="tables whose rows are samples; null: a table is an object like any other"
    )

    @property
    def expands(self) -> bool:
        """Whether archives or tables are replaced with their members or rows."""
        return self.archives == "expand" or self.rows is not None

    @field_validator("inventory")
    @classmethod
    def _beside(cls, value: Report | None, info: ValidationInfo) -> Report | None:
        url = info.data.get("url", UNREAD)
        if value is None or url == UNREAD:
            return None
        report, source = parse_url(value.url), parse_url(url)
        if not report.is_directory and report.scheme != source.scheme:
            hint = "credentials are those of the source: copy it there, or to a directory"
            raise RuleError("not in the source's provider", key="url", hint=hint, beside="url")
        return value


L = TypeVar("L", bound=Location)


def located(location: L, environ: Mapping[str, str], key: str) -> L:
    """Make a path absolute; give a bucket the endpoint that the environment chooses.

    So two names of a server are recognised as equal, and a server other than the provider's is not
    priced like the provider's own.
    """
    url = _absolute(location.url, key)
    report = getattr(location, "inventory", None)
    if report is not None:
        absolute = _absolute(report.url, key.replace("url", "inventory.url"))
        location = with_fields(location, inventory=with_fields(report, url=absolute))
    access = location.access
    endpoint = ""
    if not (access.endpoint or access.profile):
        endpoint = environment_endpoint(location.provider, environ)
    changes = {"endpoint": endpoint} if endpoint else {}
    return with_fields(location, url=url, **changes)


def _absolute(url: str, key: str) -> str:
    try:
        return resolve_url(url, Path.cwd())
    except ConfigError as error:
        raise ConfigError(error.code, error.message, where=key, hint=error.hint) from None
