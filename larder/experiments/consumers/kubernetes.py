"""Kubernetes: a Pod, a Job, or a TrainJob of Kubeflow, with the data in its first container.

Environment variables name the data: ``LARDER_LOCATION`` for `larder.open`; for other readers, the
shards of each split as a brace pattern or a list. A directory is mounted, from a persistent volume
claim or from the node. From a bucket, jobs stream and keep downloads in a volume of the node; or an
init container downloads everything to the volume (``larder warm``). A TrainJob gets volumes as a
patch of its runtime (Kubeflow Trainer, ``runtimePatches``), in the container ``node`` of the job
``node``, which the runtimes of Kubeflow have.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from larder.config.models.cluster import Cluster
from larder.config.urls import parse_url
from larder.errors import ConfigError
from larder.experiments.consumers.determined.mounts import bind, check_patterns, hides
from larder.experiments.consumers.template_conflicts import (
    Conflicts,
    addresses,
    bucket_access,
    header_lines,
    is_stale,
    job_name,
    node_count_refusal,
    overrides,
    refused,
    section,
    to_yaml,
)
from larder.experiments.delivery import ConfigFile, ConfigRequest, DeliveredVersion

DELIVERIES: tuple[str, ...] = ("volume", "bind_mount", "stream", "download")
TEMPLATE: str | None = "kubernetes/default.yaml"

_VERSIONS = {"Pod": "v1", "Job": "batch/v1", "TrainJob": "trainer.kubeflow.org/v1alpha1"}
_DATA, _CACHE = "larder-data", "larder-cache"
_CACHE_PATH = "/var/cache/larder"
_MANAGER = "larder/emit"
"""Manager of Larder's patches of a runtime."""

_NODE = "node"

Problem = tuple[str, str]


class _Volume(NamedTuple):
    """A volume and its path in containers; ``source`` is a volume source of Kubernetes."""

    name: str
    path: str
    read_only: bool
    source: Mapping[str, Any]

    @property
    def mount(self) -> dict[str, Any]:
        mount: dict[str, Any] = {"name": self.name, "mountPath": self.path}
        return {**mount, "readOnly": True} if self.read_only else mount


def config_files(request: ConfigRequest) -> tuple[ConfigFile, ...]:
    delivered, cluster, where = request.delivered, request.cluster, request.where
    config = copy.deepcopy(request.template)
    kind = config.get("kind")
    if kind not in list(_VERSIONS):
        message = f"kind must be one of {', '.join(_VERSIONS)}"
        raise refused(message, where, "fix the template")
    metadata = section(config, "metadata", dict, where)
    if not metadata.get("name") and not metadata.get("generateName"):
        metadata["generateName"] = f"{job_name(delivered)}-"
    downloads = delivered.delivery.delivery == "download"
    if downloads and kind == "TrainJob":
        hint = "set experiment.delivery to stream, or for a directory to bind_mount or volume"
        raise refused("a TrainJob has no containers of its own that download first", where, hint)
    root, volume = _place(delivered, cluster)
    pod, container, variables = _parts(config, where)
    _check_nodes(config, cluster, where)
    access = bucket_access(cluster, volume.path) if volume.name == _CACHE else {}
    access = {name: value.replace("$", "$$") for name, value in access.items()}
    conflicts = _without_conflicts(
        config, pod, container, volume, access, Conflicts(where, delivered.replaces)
    )
    present = [each.get("name") for each in variables if isinstance(each, dict)]
    added = [{"name": name, "value": access[name]} for name in access if name not in present]
    variables += added
    if downloads:
        location, mounted = delivered.location, list[_Volume]()
        if parse_url(delivered.storage_url).is_directory:
            storage, of_storage = _mounted(delivered, cluster)
            location, mounted = f"{storage}/versions/{delivered.version}", [of_storage]
        warming = _warming(container, location, volume, mounted)
        section(pod, "initContainers", list, where).append(warming)
        section(pod, "volumes", list, where).extend(map(_entry, mounted))
    variables += [_variable(*each) for each in addresses(delivered, request.contents, root)]
    if kind == "TrainJob":
        section(pod, "runtimePatches", list, where).append(_patch(volume))
    else:
        section(pod, "volumes", list, where).append(_entry(volume))
        section(container, "volumeMounts", list, where).append(volume.mount)
    problems = [*_problems(config)]
    if problems:
        text = "; ".join(f"{path}: {message}" for path, message in problems)
        message = f"not a {kind} of Kubernetes: {text}"
        hint = "fix the template"
        raise ConfigError("config.invalid_experiment", message, where=where, hint=hint)
    text = to_yaml(config, header_lines(request), where)
    return (ConfigFile("job.yaml", text, replaced=tuple(conflicts.places)),)


def command(output: Path, names: Sequence[str], cluster: Cluster) -> str:
    return f"kubectl create --filename {shlex.quote(str(output / 'job.yaml'))}"


def _check_nodes(config: dict[str, Any], cluster: Cluster, where: str) -> None:
    """Refuse another number of nodes, or of pods of a Job, than the cluster file has."""
    spec, nodes = config["spec"], cluster.nodes.count
    place, asked = "spec.parallelism", 1  # node of a Pod
    if config["kind"] == "TrainJob":
        place, trainer = "spec.trainer.numNodes", spec["trainer"]
        if trainer.get("numNodes") is None:
            trainer["numNodes"] = nodes
        asked = trainer["numNodes"]
    elif config["kind"] == "Job":
        asked = 1 if spec.get("parallelism") is None else spec["parallelism"]
    if not isinstance(asked, int) or isinstance(asked, bool):
        raise refused(f"{place} must be a whole number", where, "fix the template")
    if asked != nodes:
        raise node_count_refusal(asked, cluster, where)


def _without_conflicts(
    config: Mapping[str, Any],
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    volume: _Volume,
    access: Mapping[str, str],
    conflicts: Conflicts,
) -> Conflicts:
    """Take conflicting entries out of the template, or refuse them."""
    in_the_way = partial(_in_the_way, volume, access)
    if config["kind"] == "TrainJob":
        for key in ("trainer", "runtimePatches", "podTemplateOverrides"):
            conflicts.drop(pod.get(key), f"spec.{key}", in_the_way)
        if isinstance(pod.get("initializer"), dict):
            conflicts.drop_key(pod["initializer"], "dataset", "spec.initializer.")
    else:
        place = "spec" if config["kind"] == "Pod" else "spec.template.spec"
        for key in ("volumes", "initContainers"):  # which may use a bucket elsewhere
            conflicts.drop(pod.get(key), f"{place}.{key}", partial(_in_the_way, volume, {}))
        conflicts.drop(container, f"{place}.containers.0", in_the_way)
    conflicts.check()
    return conflicts


def _place(delivered: DeliveredVersion, cluster: Cluster) -> tuple[str, _Volume]:
    """Return the dataset's root as the container sees it, and the volume for the container."""
    delivery = delivered.delivery.delivery
    if delivery not in ("stream", "download"):
        return _mounted(delivered, cluster)
    root, volume = delivered.root.rstrip("/"), _cache_volume(cluster)
    if delivery == "download":
        root = f"{volume.path.rstrip('/')}/larder/{delivered.dataset}"
    check_patterns(root, where=f"cluster {cluster.name}")
    return root, volume


def _mounted(delivered: DeliveredVersion, cluster: Cluster) -> tuple[str, _Volume]:
    """Return the dataset's root in the container, and its volume."""
    where = f"cluster {cluster.name}: nodes.mounts"
    binding = bind(delivered.storage_url, cluster.nodes.mounts, where=where)
    named = {"volume": False, "bind_mount": True}.get(delivered.delivery.delivery)
    if named is (binding.claim is not None):
        hint = "set claim in nodes.mounts for the delivery volume, and only for that"
        raise ConfigError("config.invalid_value", "unusable mount", where=where, hint=hint)
    claim = {"claimName": binding.claim, "readOnly": binding.read_only}
    source: dict[str, Any] = {"persistentVolumeClaim": claim}
    if binding.claim is None:
        source = {"hostPath": {"path": binding.host_path, "type": "Directory"}}
    root = f"{binding.data_path.rstrip('/')}/larder/{delivered.dataset}"
    return root, _Volume(_DATA, binding.container_path, binding.read_only, source)


def _cache_volume(cluster: Cluster) -> _Volume:
    """Return the volume of downloads.

    If the cluster names a directory of the node, all pods of the node share the downloads.
    """
    downloads = cluster.nodes.downloads
    if downloads is None:
        return _Volume(_CACHE, _CACHE_PATH, False, {"emptyDir": {}})
    if ".." in downloads.host_path.split("/"):
        message, where = "host_path must not contain ..", f"cluster {cluster.name}: nodes.downloads"
        raise ConfigError("config.path", message, where=where, hint="write it in full")
    source = {"hostPath": {"path": downloads.host_path, "type": "DirectoryOrCreate"}}
    return _Volume(_CACHE, downloads.container_path, False, source)


def _entry(volume: _Volume) -> dict[str, Any]:
    return {"name": volume.name, **volume.source}


def _warming(
    container: Mapping[str, Any], location: str, volume: _Volume, mounted: Sequence[_Volume]
) -> dict[str, Any]:
    """Make an init container that downloads the version, in the image of the training container."""
    fields = ("image", "imagePullPolicy", "envFrom", "env", "securityContext")
    shared = {name: copy.deepcopy(container[name]) for name in fields if name in container}
    command = ["larder", "warm", location.replace("$", "$$"), "--to", volume.path]
    mounts = [each.mount for each in (volume, *mounted)]
    return {"name": volume.name, **shared, "command": command, "volumeMounts": mounts}


def _variable(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value.replace("$", "$$")}  # $(NAME) and $$ would be replaced


def _parts(config: dict[str, Any], where: str) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """Return the specification of the pod, its first container, and the container's variables."""
    spec = section(config, "spec", dict, where)
    if config["kind"] == "TrainJob":
        trainer = section(spec, "trainer", dict, where)
        return spec, trainer, section(trainer, "env", list, where)
    if config["kind"] == "Job":
        spec = section(section(spec, "template", dict, where), "spec", dict, where)
    containers = section(spec, "containers", list, where)
    if not containers or not isinstance(containers[0], dict):
        raise refused("containers must have one", where, "fix the template")
    return spec, containers[0], section(containers[0], "env", list, where)


def _in_the_way(volume: _Volume, access: Mapping[str, str], entry: Any) -> bool:
    """Whether an entry of a list names another version, region or endpoint, hides the data, or has
    a name of ours.
    """
    if not isinstance(entry, dict):
        return False
    name, path = entry.get("name"), entry.get("mountPath")
    ours = name in (volume.name, _DATA) or entry.get("manager") == _MANAGER
    other = overrides(name, entry.get("value"), access)
    return ours or other or is_stale(entry) or hides(path, volume.path)


def _patch(volume: _Volume) -> dict[str, Any]:
    """Make a patch of the runtime of a TrainJob: its own fields have no volumes."""
    container = {"name": _NODE, "volumeMounts": [volume.mount]}
    pod = {"volumes": [_entry(volume)], "containers": [container]}
    job = {"name": _NODE, "template": {"spec": {"template": {"spec": pod}}}}
    runtime = {"template": {"spec": {"replicatedJobs": [job]}}}
    return {"manager": _MANAGER, "trainingRuntimeSpec": runtime}


_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def _problems(config: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the emitted fields, and the fields without which no job begins."""
    kind, spec = config["kind"], config["spec"]
    if config.get("apiVersion") != _VERSIONS[kind]:
        yield "apiVersion", f"must be {_VERSIONS[kind]}"
    metadata = config["metadata"]
    name = metadata.get("name") or f"{metadata.get('generateName')}x"
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > 63:
        yield "metadata.name", "must be at most 63 lower-case letters, digits and hyphens"
    if kind == "TrainJob":
        runtime = spec.get("runtimeRef")
        if not isinstance(runtime, dict) or not runtime.get("name"):
            yield "spec.runtimeRef.name", "required"
        yield from _variable_problems(spec["trainer"]["env"], "spec.trainer.env")
        return
    path = "spec" if kind == "Pod" else "spec.template.spec"
    pod = spec if kind == "Pod" else spec["template"]["spec"]
    if kind == "Job" and pod.get("restartPolicy") not in ("Never", "OnFailure"):
        yield f"{path}.restartPolicy", "must be Never or OnFailure"
    container = pod["containers"][0]
    for field in ("name", "image"):
        if not isinstance(container.get(field), str) or not container[field]:
            yield f"{path}.containers.0.{field}", "required"
    yield from _variable_problems(container["env"], f"{path}.containers.0.env")
    volumes = [each.get("name") for each in pod["volumes"] if isinstance(each, dict)]
    if any(volumes.count(name) > 1 for name in volumes):
        yield f"{path}.volumes", "must have different names"
    place = f"{path}.containers.0.volumeMounts"
    for number, mount in enumerate(container["volumeMounts"]):
        if not isinstance(mount, dict) or mount.get("name") not in volumes:
            yield f"{place}.{number}.name", "there is no such volume"
        elif ":" in str(mount.get("mountPath", ":")):
            yield f"{place}.{number}.mountPath", "required, without a colon"


def _variable_problems(variables: Sequence[Any], path: str) -> Iterator[Problem]:
    for number, each in enumerate(variables):
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            yield f"{path}.{number}.name", "required"
        elif not isinstance(each.get("value", ""), str):
            yield f"{path}.{number}.value", "must be a string: put it in quotes"
