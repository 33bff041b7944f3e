"""Determined experiment configs: a template, merged with the location of the data.

The fields are those of Determined's experiment configuration reference, release 0.38; training
code reads ``data`` with ``context.get_data_config()`` or ``det.get_cluster_info().user_data``.
"""

from __future__ import annotations

import copy
import io
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter

from larder.config.models import Cluster
from larder.config.text import round_trip
from larder.config.urls import parse_url
from larder.errors import ConfigError
from larder.experiments.consumers.determined.mounts import bind, container_target, under
from larder.experiments.consumers.determined.validate import release_number, validate
from larder.experiments.delivery import (
    ConfigFile,
    Contents,
    DeliveredSplit,
    DeliveredVersion,
)

DELIVERIES: tuple[str, ...] = ("bind_mount", "bucket")
TEMPLATES: str | None = ""

_INCLUDES = (0, 19, 9)
"""The first release that was seen to have ``det experiment create --include``."""

_DEVICES = ("cpu", "cuda", "rocm")
_DATA = frozenset(
    {
        "bucket",
        "cache",
        "classes",
        "dataset",
        "digest",
        "location",
        "path",
        "prefix",
        "splits",
        "version",
    }
)
"""All fields of ``data`` that Larder may set, which no template may have."""

_AMBIGUOUS = re.compile(
    r"(?:[-+.0-9][-+.:_0-9a-fxotz ]*|[0-9a-f]{16,}|[-+]?\.(?:inf|nan)"
    r"|y|n|yes|no|on|off|true|false|null|~|=|<<)\Z",
    re.IGNORECASE,
)


def check(
    template: dict[str, Any], delivered: DeliveredVersion, cluster: Cluster, *, where: str = ""
) -> None:
    """Refuse a template that no version can be merged with."""
    config, *_ = placed(template, delivered, cluster, where=where)
    validate(config, cluster.consumer.release, where=where)


def config_files(
    template: dict[str, Any],
    delivered: DeliveredVersion,
    contents: Contents,
    cluster: Cluster,
    *,
    where: str = "",
) -> tuple[ConfigFile, ...]:
    """The experiment config of a version, validated."""
    config = render(template, delivered, contents, cluster, where=where)
    validate(config, cluster.consumer.release, where=where)
    source = f" from {where}" if where else ""
    header = (
        f"Made by Larder{source} for the cluster {cluster.name}; rewritten by every run.",
        f"dataset: {delivered.dataset}",
        f"version: {delivered.version}",
        f"content digest: {contents.digest}",
        delivered.delivery.sentence,
    )
    return (ConfigFile("experiment.yaml", to_yaml(config, header)),)


def command(output: Path, names: Sequence[str], cluster: Cluster) -> str:
    """The line that submits the experiment; the output directory may be that of the model code."""
    config = shlex.quote(str(output / "experiment.yaml"))
    create = f"det experiment create {config}"
    emitted = {name.partition("/")[0] for name in names}
    if any(path.name not in emitted for path in output.iterdir()):
        return f"{create} {shlex.quote(str(output))}"
    beside = [shlex.quote(str(output / name)) for name in sorted(emitted - {"experiment.yaml"})]
    if release_number(cluster.consumer.release) >= _INCLUDES:
        return " ".join([create, "MODEL_DIR", *(f"--include {path}" for path in beside)])
    copied = f"cp -r {' '.join(beside)} MODEL_DIR && " if beside else ""
    return f"{copied}{create} MODEL_DIR"


def render(
    template: dict[str, Any],
    delivered: DeliveredVersion,
    contents: Contents,
    cluster: Cluster,
    *,
    where: str = "",
) -> dict[str, Any]:
    """Merge a template with the facts about a version; see `placed`.

    Paths and URLs in ``data`` are those that a training container sees.
    """
    config, root, address = placed(template, delivered, cluster, where=where)
    config["data"].update(_data(delivered, contents, root, address))
    return config


def placed(
    template: dict[str, Any], delivered: DeliveredVersion, cluster: Cluster, *, where: str = ""
) -> tuple[dict[str, Any], str, dict[str, str]]:
    """Add to a template how containers reach the data, without what is only known of a published
    version.

    The template's content is kept in its order, with its comments; ``bind_mounts`` or
    ``environment`` is added or extended, and ``name`` is added if it is missing.

    Args:
        template: The experiment without its data; not modified.
        delivered: The version.
        cluster: Where training runs.
        where: Names the template in errors.

    Returns:
        The config, the dataset's root as a container sees it, and the fields of ``data`` that name
        the mount or the bucket.

    Raises:
        ConfigError: ``config.template`` if the template already sets what Larder sets,
            ``config.path`` for an unusable mount.
    """
    config = copy.deepcopy(template)
    if not config.get("name"):
        config["name"] = f"{delivered.dataset}-{delivered.version[:8]}"
    if delivered.delivery.delivery == "bind_mount":
        root, address = _mount(config, delivered, cluster, where)
    else:
        root, address = _bucket(config, delivered, cluster, where)
    present = sorted(_DATA & _section(config, "data", dict, where).keys())
    if present:
        names = ", ".join(f"data.{name}" for name in present)
        raise _refused(f"the template sets {names}, which Larder sets", where, "remove it")
    return config, root, address


def _mount(
    config: dict[str, Any], delivered: DeliveredVersion, cluster: Cluster, where: str
) -> tuple[str, dict[str, str]]:
    """Add the bind mount; returns the dataset's root in the container, and ``data.path``."""
    binding = bind(
        delivered.storage_url,
        cluster.nodes.mounts,
        where=f"cluster {cluster.name}: nodes.mounts",
    )
    mounts = _section(config, "bind_mounts", list, where)
    for number, mount in enumerate(mounts):
        path = mount.get("container_path") if isinstance(mount, Mapping) else None
        if isinstance(path, str) and container_target(path) == binding.container_path:
            message = f"bind_mounts.{number} mounts {path}, where the data is mounted"
            raise _refused(message, where, "remove it, or choose another container_path")
    mounts.append(
        {
            "host_path": binding.host_path,
            "container_path": binding.container_path,
            "read_only": binding.read_only,
        }
    )
    root = f"{binding.data_path}/{_rest(delivered.root, delivered.storage_url)}".rstrip("/")
    return root, {"path": root}


def _bucket(
    config: dict[str, Any], delivered: DeliveredVersion, cluster: Cluster, where: str
) -> tuple[str, dict[str, str]]:
    """Add how to reach the bucket; returns the dataset's root, ``data.bucket``, ``data.prefix``."""
    root = parse_url(delivered.root.rstrip("/"))
    variables = {
        "AWS_DEFAULT_REGION": cluster.storage.access.region,
        "AWS_ENDPOINT_URL": cluster.storage.access.endpoint,
    }
    if root.scheme == "s3" and any(variables.values()):
        environment = _section(config, "environment", dict, where)
        wanted = {name: value for name, value in variables.items() if value}
        present = environment.get("environment_variables")
        environment["environment_variables"] = _with_variables(present, wanted, where)
    return delivered.root.rstrip("/"), {"bucket": root.bucket, "prefix": f"{root.prefix}/"}


def _with_variables(present: Any, wanted: Mapping[str, str], where: str) -> Any:
    """Add variables to a list, or to each list of a map by device; existing ones are kept."""
    if isinstance(present, dict):
        devices = [*present, *(name for name in _DEVICES if name not in present)]
        if "gpu" in present and "cuda" not in present:  # gpu is the former name of cuda
            devices.remove("cuda")
        for name in devices:
            present[name] = _with_variables(present.get(name), wanted, where)
        return present
    if present is not None and not isinstance(present, list):
        message = "environment.environment_variables must be a list, or a map by device"
        raise _refused(message, where, "write it as a list of NAME=VALUE")
    variables = [] if present is None else present
    names = {str(entry).partition("=")[0] for entry in variables}
    variables += [f"{name}={value}" for name, value in wanted.items() if name not in names]
    return variables


def _data(
    delivered: DeliveredVersion, contents: Contents, root: str, address: Mapping[str, str]
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "dataset": delivered.dataset,
        "version": delivered.version,
        "digest": contents.digest,
        "location": f"{root}/{_rest(delivered.location, delivered.root)}",
        **address,
    }
    if contents.classes is not None:
        data["classes"] = contents.classes
    data["splits"] = {
        name: _split(split, delivered, root) for name, split in sorted(contents.splits.items())
    }
    if contents.cache:
        data["cache"] = {
            name: [f"{root}/{_rest(path, delivered.root)}" for path in paths]
            for name, paths in sorted(contents.cache.items())
        }
    return data


def _split(split: DeliveredSplit, delivered: DeliveredVersion, root: str) -> dict[str, Any]:
    return {
        **_shards(split, delivered, root),
        "samples": split.samples,
        "shards": split.shards,
        "bytes": split.bytes,
    }


def _shards(split: DeliveredSplit, delivered: DeliveredVersion, root: str) -> dict[str, str]:
    """The names of the shards, for whoever reads them without Larder."""
    if not delivered.delivery.shards:
        return {}
    if split.list:
        return {"list": f"{root}/{_rest(split.list, delivered.root)}"}
    patterns = (f"{root}/{_rest(pattern, delivered.root)}" for pattern in split.patterns)
    return {"pattern": "::".join(patterns)}  # as WebDataset's readers split them


def _rest(path: str, root: str) -> str:
    """``path`` relative to ``root``, without a trailing slash; both may be URLs or paths."""
    path, root = path.removeprefix("file://"), root.removeprefix("file://")
    rest = under(path, root)
    assert rest is not None or not (path.startswith("/") or "://" in path), f"{path} not in {root}"
    return (path if rest is None else rest).strip("/")


def _section(config: dict[str, Any], key: str, kind: type[Any], where: str) -> Any:
    """The template's own section, or a new one, as part of ``config``."""
    if config.get(key) is None:
        config[key] = kind()
    if not isinstance(config[key], kind):
        noun = "a list" if kind is list else "a mapping"
        raise _refused(f"{key} must be {noun}", where, "fix the template")
    return config[key]


def _refused(message: str, where: str, hint: str) -> ConfigError:
    return ConfigError("config.template", message, where=where, hint=hint)


class _Representer(RoundTripRepresenter):
    """Quotes strings that some reader would take for something else."""

    def represent_text(self, text: str) -> ScalarNode:
        # YAML 1.1 has more words and numbers than 1.2, which Determined reads: 12e4 is one in 1.2
        # only. Only double quotes escape Unicode line breaks.
        style = '"' if not text.isprintable() else "'" if _AMBIGUOUS.match(text) else None
        node: ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", text, style=style)
        return node


_Representer.add_representer(str, _Representer.represent_text)


def to_yaml(config: Mapping[str, Any], header: Iterable[str] = ()) -> str:
    """The file's text, the same for the same template and values, after ``header`` as a comment."""
    text = io.StringIO()
    comment = [f"# {' '.join(line.split())}\n" for line in header]
    text.writelines([*comment, "\n"] if comment else [])
    yaml = round_trip()
    yaml.Representer = _Representer
    yaml.dump(config, text)
    return text.getvalue()
