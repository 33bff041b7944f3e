"""Determined experiment configs: a template, merged with the location of the data.

Fields are named as in Determined's experiment configuration reference, release 0.38. Training code
reads ``data`` with ``context.get_data_config()`` or ``det.get_cluster_info().user_data``.
"""

from __future__ import annotations

import copy
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from larder.config.models.cluster import Cluster
from larder.config.urls import parse_url
from larder.errors import ConfigError
from larder.experiments.consumers.determined.companions import (
    HOOK,
    INLINE,
    SIGNATURE,
    hook_without_larder,
    inline_mark,
    startup_hook,
)
from larder.experiments.consumers.determined.mounts import bind, check_patterns, normal, under
from larder.experiments.consumers.determined.template import Template, has_old_image
from larder.experiments.consumers.determined.validate import (
    determined_keys,
    release_number,
    title_key,
    validate,
)
from larder.experiments.consumers.template_conflicts import Conflicts, header_lines, to_yaml
from larder.experiments.delivery import (
    BY_LARDER,
    FIRST_WITH_LARDER,
    ConfigFile,
    ConfigRequest,
    DeliveredSplit,
    DeliveredVersion,
    VersionContents,
)

DELIVERIES: tuple[str, ...] = (
    "bind_mount",
    "bucket",
    "inline",
    "stream",
    "download",
    "cache",
    "volume",
    "data_layer",
)
TEMPLATE: str | None = "default.yaml"

_CACHE_DIR = "LARDER_CACHE_DIR"
"""Variable with the directory in which readers keep downloaded indexes and cache files."""

_INCLUDES = (0, 19, 9)
"""The first release that was seen to have ``det experiment create --include``."""

_DATA = frozenset(
    {
        "bucket",
        "cache",
        "classes",
        "dataset",
        "digest",
        "endpoint",
        "location",
        "path",
        "prefix",
        "splits",
        "version",
    }
)
"""All fields of ``data`` that Larder may set, which no template may have."""


def config_files(request: ConfigRequest) -> tuple[ConfigFile, ...]:
    """Make the experiment config of a version, validated, and the files beside the model code."""
    replaced: list[str] = []
    delivered, contents, cluster = request.delivered, request.contents, request.cluster
    where, delivery = request.where, delivered.delivery.delivery
    config = render(request, replaced)
    validate(config, cluster.consumer.release, where=where)
    has_release = release_number(cluster.consumer.release) >= FIRST_WITH_LARDER
    with_larder = has_release and not has_old_image(request.template)
    opens = with_larder or delivery in BY_LARDER
    header = (
        *header_lines(request, f" from {where}" if where else ""),
        f"Training code reads {'it with: data = larder.open()' if opens else 'data.splits'}",
    )
    hook = ""
    if delivery == "download":
        directory, endpoint = _downloads(cluster), cluster.storage.access.endpoint or ""
        hook = startup_hook(delivered._replace(location=_location(delivered, cluster)), directory)
        if not with_larder:
            hook = hook_without_larder(delivered, directory, _shard_files(contents), endpoint)
    files = (
        ConfigFile("experiment.yaml", to_yaml(config, header, where), replaced=tuple(replaced)),
        ConfigFile(HOOK, hook, signature=SIGNATURE),
    )
    return (*files, inline_mark(delivered, contents)) if delivery == "inline" else files


def _shard_files(contents: VersionContents) -> Iterator[tuple[str, str]]:
    """Yield the shards with their digests, then indexes and lists with ``-``."""
    for files in contents.shard_files().values():
        yield from ((file.sha256, file.path) for file in files)
    for split in contents.splits.values():
        yield from (("-", path) for path in (*split.indexes.values(), split.list) if path)


def command(output: Path, names: Sequence[str], cluster: Cluster) -> str:
    """Return the line that submits the experiment.

    The output directory may also be the directory of the model code.
    """
    config = shlex.quote(str(output / "experiment.yaml"))
    create = f"det experiment create {config}"
    emitted = {name.partition("/")[0] for name in names}
    if any(path.name not in {*emitted, INLINE} for path in output.iterdir()):
        return f"{create} {shlex.quote(str(output))}"
    beside = [shlex.quote(str(output / name)) for name in sorted(emitted - {"experiment.yaml"})]
    if release_number(cluster.consumer.release) >= _INCLUDES:
        return " ".join([create, "MODEL_DIR", *(f"--include {path}" for path in beside)])
    copied = f"cp -r {' '.join(beside)} MODEL_DIR && " if beside else ""
    return f"{copied}{create} MODEL_DIR"


def render(request: ConfigRequest, replaced: list[str] | None = None) -> dict[str, Any]:
    """Merge a template with the facts about a version, and how containers reach its data.

    The template's content is kept in its order, with its comments; ``name`` is added if it is
    missing, or ``description`` in releases that have no ``name``. Paths and URLs in ``data`` are as
    a training container sees them. ``replaced`` receives the places of replaced entries.

    Raises:
        ConfigError: ``config.template`` if the template already sets one of Larder's fields,
            ``config.path`` for an unusable mount, ``config.invalid_value`` for a volume whose mount
            has no claim.
    """
    delivered, cluster = request.delivered, request.cluster
    conflicts = Conflicts(request.where, delivered.replaces, [] if replaced is None else replaced)
    merged = Template(copy.deepcopy(request.template), conflicts)
    merged.drop_variables()
    title = title_key(release_number(cluster.consumer.release))
    if not merged.config.get(title):
        merged.config[title] = f"{delivered.dataset}-{delivered.version[:8]}"
    root, address = _placed(merged, delivered, cluster)
    check_patterns(root, where=f"cluster {cluster.name}")
    if "://" not in root:
        address = {"path": root, **address}
    names = _DATA
    if delivered.delivery.delivery == "data_layer":
        section = _data_layer(delivered, cluster)
        if _has_data_layer(cluster):
            merged.set_field("data_layer", section)
        else:  # Larder's decorators read it from here
            address, names = {**address, "data_layer": section}, _DATA | {"data_layer"}
            if path := section.get("host_storage_path"):
                merged.add_mount(path, path, read_only=False)
    merged.set_data(_data(request, root, address), names)
    conflicts.check()
    return merged.config


def _data(request: ConfigRequest, root: str, address: Mapping[str, Any]) -> dict[str, Any]:
    """Return Larder's fields of ``data``."""
    delivered, contents = request.delivered, request.contents
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


def _placed(
    merged: Template, delivered: DeliveredVersion, cluster: Cluster
) -> tuple[str, dict[str, Any]]:
    """Add how containers reach the data; return the dataset's root there, and fields for it."""
    delivery, address = delivered.delivery.delivery, dict[str, Any]()
    if delivery == "inline":
        return f"{INLINE}/{_folder(delivered)}", address
    if parse_url(delivered.storage_url).is_directory:
        if delivery == "download":
            _add_downloads(merged, cluster)
        root = _mounted(merged, delivered, cluster)
    else:
        root, address = delivered.root.rstrip("/"), _bucket(merged, delivered, cluster)
    if delivery == "download":
        root = f"{_downloads(cluster)}/{_folder(delivered)}"
    return root, address


def _mounted(merged: Template, delivered: DeliveredVersion, cluster: Cluster) -> str:
    """Add the mount of the storage; returns the dataset's root in the container."""
    where = f"cluster {cluster.name}: nodes.mounts"
    binding = bind(delivered.storage_url, cluster.nodes.mounts, where=where)
    delivery = delivered.delivery.delivery
    if delivery == "volume" and not binding.claim:
        message, hint = "the mount of the storage has no claim", "set nodes.mounts[].claim"
        raise ConfigError("config.invalid_value", message, where=where, hint=hint)
    if binding.claim and delivery != "bind_mount":
        merged.add_volume(binding)
    else:
        merged.add_mount(binding.host_path, binding.container_path, read_only=binding.read_only)
    return f"{binding.data_path}/{_rest(delivered.root, delivered.storage_url)}".rstrip("/")


def _bucket(merged: Template, delivered: DeliveredVersion, cluster: Cluster) -> dict[str, str]:
    """Add how to reach the bucket, and where downloads are kept; returns fields of ``data``."""
    root = parse_url(delivered.root.rstrip("/"))
    access, downloads = cluster.storage.access, cluster.nodes.downloads
    variables = {}
    if root.scheme == "s3":
        variables = {"AWS_DEFAULT_REGION": access.region, "AWS_ENDPOINT_URL": access.endpoint}
    # The data layer mounts them itself.
    if downloads and not (delivered.delivery.delivery == "data_layer" and _has_data_layer(cluster)):
        _add_downloads(merged, cluster)
        variables[_CACHE_DIR] = f"{normal(downloads.container_path)}/cache"
    if wanted := {name: value for name, value in variables.items() if value}:
        merged.add_variables(wanted)
    address = {"bucket": root.bucket, "prefix": f"{root.prefix}/"}
    return {**address, "endpoint": access.endpoint} if access.endpoint else address


def _add_downloads(merged: Template, cluster: Cluster) -> None:
    if cluster.nodes.downloads:
        host_path = cluster.nodes.downloads.host_path
        merged.add_mount(host_path, _downloads(cluster), read_only=False)


def _location(delivered: DeliveredVersion, cluster: Cluster) -> str:
    """Return the version as a container sees it in the storage."""
    if not parse_url(delivered.storage_url).is_directory:
        return delivered.location
    mount = bind(delivered.storage_url, cluster.nodes.mounts)
    return f"{mount.data_path}/{_rest(delivered.location, delivered.storage_url)}"


def _downloads(cluster: Cluster) -> str:
    """Return the directory in which containers keep downloads."""
    downloads = cluster.nodes.downloads
    return normal(downloads.container_path) if downloads else "/tmp/larder"  # noqa: S108


def _folder(delivered: DeliveredVersion) -> str:
    return f"larder/{delivered.dataset}"


def _has_data_layer(cluster: Cluster) -> bool:
    return "data_layer" in determined_keys(cluster.consumer.release)


def _data_layer(delivered: DeliveredVersion, cluster: Cluster) -> dict[str, str]:
    """Place the caches of the data layer beside Larder's own folder in the storage."""
    storage, downloads = parse_url(delivered.storage_url), cluster.nodes.downloads
    if storage.is_directory:
        path = f"{normal(storage.rest)}/data_layer"
        return {"type": "shared_fs", "host_storage_path": path, "container_storage_path": path}
    section = {
        "type": {"s3": "s3", "gs": "gcs"}[storage.scheme],
        "bucket": storage.bucket,
        "bucket_directory_path": f"{storage.prefix}/data_layer".lstrip("/"),
    }
    if storage.scheme == "s3" and cluster.storage.access.endpoint:
        section["endpoint_url"] = cluster.storage.access.endpoint
    if downloads:
        section["local_cache_host_path"] = downloads.host_path
        section["local_cache_container_path"] = normal(downloads.container_path)
    return section


def _split(split: DeliveredSplit, delivered: DeliveredVersion, root: str) -> dict[str, Any]:
    return {
        **_shards(split, delivered, root),
        "samples": split.samples,
        "shards": split.shards,
        "bytes": split.bytes,
    }


def _shards(split: DeliveredSplit, delivered: DeliveredVersion, root: str) -> dict[str, Any]:
    """Name the shards, for training code that reads without Larder."""
    if not delivered.delivery.shards:
        return {}
    indexes = {kind: f"{root}/{path}" for kind, path in sorted(split.indexes.items())}
    names = {"indexes": indexes} if indexes else {}
    if split.list:
        return {"list": f"{root}/{_rest(split.list, delivered.root)}", **names}
    patterns = (f"{root}/{_rest(pattern, delivered.root)}" for pattern in split.patterns)
    return {"pattern": "::".join(patterns), **names}  # as WebDataset's readers split them


def _rest(path: str, root: str) -> str:
    """Make ``path`` relative to ``root``, without a trailing slash; both may be URLs or paths."""
    path, root = path.removeprefix("file://"), root.removeprefix("file://")
    rest = under(path, root)
    assert rest is not None or not (path.startswith("/") or "://" in path), f"{path} not in {root}"
    return (path if rest is None else rest).strip("/")
