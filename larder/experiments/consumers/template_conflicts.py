"""Common code of consumers: parts of a template, conflicts with a template, and its text."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode

from larder.config.models.cluster import Cluster
from larder.config.text import Representer, round_trip
from larder.config.urls import parse_url
from larder.errors import ConfigError
from larder.experiments.delivery import LOCATION, ConfigRequest, DeliveredVersion, VersionContents


def section(config: dict[str, Any], key: str, kind: type[Any], where: str, place: str = "") -> Any:
    """Return a section of ``config``, created if missing; errors put ``place`` before ``key``."""
    if config.get(key) is None:
        config[key] = kind()
    if not isinstance(config[key], kind):
        noun = "a list" if kind is list else "a mapping"
        raise refused(f"{place}{key} must be {noun}", where, "fix the template")
    return config[key]


def refused(message: str, where: str, hint: str) -> ConfigError:
    return ConfigError("config.template", message, where=where, hint=hint)


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Entries of a template that Larder sets, too: refused, or replaced."""

    where: str
    replaces: bool
    places: list[str] = field(default_factory=list)

    def drop(self, value: Any, place: str, in_the_way: Callable[[Any], bool]) -> None:
        """Take entries out of all lists in a part of the template."""
        if isinstance(value, dict):
            for key, each in value.items():
                self.drop(each, f"{place}.{key}", in_the_way)
        if not isinstance(value, list):
            return
        for number in reversed(range(len(value))):
            entry = value[number]
            if not in_the_way(entry):
                self.drop(entry, f"{place}.{number}", in_the_way)
                continue
            name = entry.partition("=")[0] if isinstance(entry, str) else number
            self.places.append(f"{place}.{name}")
            del value[number]

    def drop_key(self, section: dict[str, Any], key: str, place: str) -> None:
        if section.pop(key, None) is not None:
            self.places.append(f"{place}{key}")

    def check(self) -> None:
        """Refuse the template if there were conflicts, unless they are replaced."""
        if self.places and not self.replaces:
            places = "; ".join(sorted(self.places))
            message = f"the template sets or hides what Larder sets: {places}"
            hint = "remove that; larder emit --force replaces it in a published version's config"
            raise refused(message, self.where, hint)


def is_stale(variable: Any) -> bool:
    """Whether a variable, or an entry that sets a variable, names the place of a version."""
    if isinstance(variable, dict):
        variable = variable.get("name")
    return _ADDRESS.fullmatch(str(variable).partition("=")[0]) is not None


_ADDRESS = re.compile(rf"{LOCATION}|LARDER_(?:LIST|SHARDS)_.*")


_PREFERRED = {"AWS_ENDPOINT_URL": "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION": "AWS_REGION"}


def overrides(name: Any, value: Any, variables: Mapping[str, str]) -> bool:
    """Whether a variable gives another value to one of ``variables``.

    Variables that clients prefer, such as AWS_REGION, count, too.
    """
    return any(
        name in (each, _PREFERRED.get(each, each)) and value != wanted
        for each, wanted in variables.items()
    )


def node_count_refusal(asked: object, cluster: Cluster, where: str) -> ConfigError:
    """Return the error for a template with another number of nodes than the cluster file."""
    rule = f"nodes.count of the cluster file is {cluster.nodes.count}"
    hint = "fix the template or the cluster file"
    message = f"the template asks for {asked} nodes, but {rule}"
    return ConfigError("config.invalid_experiment", message, where=where, hint=hint)


def job_name(delivered: DeliveredVersion) -> str:
    """Make a name that SageMaker and Kubernetes accept, with room for 24 more characters of 63.

    A dataset's may have underscores.
    """
    name = delivered.dataset.replace("_", "-").strip("-")[:30].rstrip("-")
    return f"{name}-{delivered.version[:8]}"


def header_lines(request: ConfigRequest, source: str = "") -> tuple[str, ...]:
    """List the lines of the comment at the head of a config; ``source`` names its template."""
    delivered = request.delivered
    return (
        f"Made by Larder{source} for the cluster {request.cluster.name}; rewritten by every run.",
        f"dataset: {delivered.dataset}",
        f"version: {delivered.version}",
        f"content digest: {request.contents.digest}",
        delivered.delivery.sentence,
    )


def addresses(
    delivered: DeliveredVersion, contents: VersionContents, root: str
) -> Iterator[tuple[str, str]]:
    """Yield the variables with the version and its shards, for training that sees ``root``."""
    yield LOCATION, f"{root}/versions/{delivered.version}"
    splits: dict[str, str] = {}
    for split, facts in sorted(contents.splits.items()):
        name = split.upper().replace("-", "_")
        if not delivered.delivery.shards or not facts.shards:
            continue
        if (other := splits.setdefault(name, split)) != split:
            message = f"{other} and {split} would share the variable LARDER_SHARDS_{name}"
            raise ConfigError("config.invalid_value", message, where="splits", hint="rename one")
        if facts.list:
            yield f"LARDER_LIST_{name}", f"{root}/{facts.list}"
        else:
            patterns = (f"{root}/{pattern}" for pattern in facts.patterns)
            yield f"LARDER_SHARDS_{name}", "::".join(patterns)


def bucket_access(cluster: Cluster, cache_dir: str | None) -> dict[str, str]:
    """Return the variables for reaching the bucket, and for keeping its downloads."""
    variables = {"LARDER_CACHE_DIR": cache_dir}
    if parse_url(cluster.storage.url).scheme == "s3":
        access = cluster.storage.access
        variables |= {"AWS_DEFAULT_REGION": access.region, "AWS_ENDPOINT_URL": access.endpoint}
    return {name: value for name, value in variables.items() if value}


_AMBIGUOUS = re.compile(
    r"(?:[-+.0-9][-+.:_0-9a-fxotz ]*|[0-9a-f]{16,}|[-+]?\.(?:inf|nan)"
    r"|y|n|yes|no|on|off|true|false|null|~|=|<<)\Z",
    re.IGNORECASE,
)


class _QuotingRepresenter(Representer):
    """Quotes strings that some reader would take for other values."""

    def represent_text(self, text: str) -> ScalarNode:
        # YAML 1.1 has more words and numbers than 1.2, which Determined reads; 12e4 is a number in
        # 1.2 only. Only double quotes escape Unicode line breaks.
        style = '"' if not text.isprintable() else "'" if _AMBIGUOUS.match(text) else None
        node: ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", text, style=style)
        return node


_QuotingRepresenter.add_representer(str, _QuotingRepresenter.represent_text)


def comments(header: Iterable[str]) -> str:
    return "".join(f"# {' '.join(line.split())}\n" for line in header)


def to_yaml(config: Mapping[str, Any], header: Iterable[str] = (), where: str = "") -> str:
    """Write a config as YAML after a comment; equal templates and values give equal texts.

    The text is read again, and refused if other values come back.
    """
    text = io.StringIO()
    comment = comments(header)
    text.write(f"{comment}\n" if comment else "")
    yaml = round_trip()
    yaml.Representer = _QuotingRepresenter
    yaml.dump(config, text)
    try:
        read = YAML(typ="safe", pure=True).load(text.getvalue())
    except (YAMLError, ValueError):
        read = None
    if _bare(read) != _bare(config):
        message = "the config would be read with other values than the template has"
        raise refused(message, where, "write the template without anchors and merges")
    return text.getvalue()


def _bare(value: Any) -> Any:
    """Return plain values for comparison: true differs from 1, and 1.0 from 1."""
    if isinstance(value, Mapping):
        return {key: _bare(each) for key, each in value.items()}
    return list(map(_bare, value)) if isinstance(value, list | tuple) else repr(value)
