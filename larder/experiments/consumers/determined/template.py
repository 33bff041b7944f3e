"""A template of an experiment, Larder's additions, and the conflicts between both."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

from larder.errors import ConfigError
from larder.experiments.consumers.determined.mounts import Binding, container_target, hides
from larder.experiments.consumers.template_conflicts import Conflicts, is_stale, overrides, section

_DEVICES = ("cpu", "cuda", "rocm")
_CONTAINER = "determined-container"
"""The container of a pod that runs the experiment."""
_VOLUME = "larder-data"
_OLD_IMAGE = re.compile(r"determinedai/(?:environments:(?!py-3\.1\d)|pytorch-tensorflow-)")
"""Determined's images with Python 3.9 or older, as most with a tag of CUDA are."""


def slots_of(template: Mapping[str, Any]) -> int | None:
    """Return ``resources.slots_per_trial``; None if it is missing or no whole number."""
    slots = _field(template, "resources", "slots_per_trial")
    return slots if isinstance(slots, int) and not isinstance(slots, bool) else None


def has_own_image(template: Mapping[str, Any]) -> bool:
    """Whether ``environment.image`` names an image that may have Python 3.10."""
    return bool(_field(template, "environment", "image")) and not has_old_image(template)


def has_old_image(template: Mapping[str, Any]) -> bool:
    """Whether ``environment.image`` names an image of Determined with Python 3.9 or older."""
    return _OLD_IMAGE.search(str(_field(template, "environment", "image"))) is not None


def _field(template: Mapping[str, Any], section: str, key: str) -> Any:
    inside = template.get(section)
    return inside.get(key) if isinstance(inside, Mapping) else None


class Template(NamedTuple):
    """A template that becomes the config; its own content keeps its order and its comments.

    Attributes:
        config: The experiment; modified in place.
        conflicts: Entries of the template in the place of Larder's, which are taken out.
    """

    config: dict[str, Any]
    conflicts: Conflicts

    def set_data(self, data: Mapping[str, Any], names: Collection[str]) -> None:
        """Set fields of ``data``; fields of the template with one of ``names`` are conflicts."""
        present = self._section("data", dict)
        for name in sorted(names & present.keys()):
            self.conflicts.drop_key(present, name, "data.")
        present.update(data)

    def set_field(self, name: str, value: Any) -> None:
        self.conflicts.drop_key(self.config, name, "")
        self.config[name] = value

    def add_mount(self, host_path: str, container_path: str, *, read_only: bool) -> None:
        self._drop_mounts(container_path)
        mount = {"host_path": host_path, "container_path": container_path, "read_only": read_only}
        self._section("bind_mounts", list).append(mount)

    def add_volume(self, binding: Binding) -> None:
        """Add the volume of a persistent volume claim, through the pod of Kubernetes."""
        self._drop_mounts(binding.container_path)
        pod = self._section("environment.pod_spec", dict)
        pod.setdefault("apiVersion", "v1")
        pod.setdefault("kind", "Pod")
        spec = "environment.pod_spec.spec"
        claim = {"claimName": binding.claim, "readOnly": binding.read_only}
        volume = {"name": _VOLUME, "persistentVolumeClaim": claim}
        self._section(f"{spec}.volumes", list).append(volume)
        containers = self._section(f"{spec}.containers", list)
        container = next(filter(_is_container, containers), None)
        if container is None:
            container = {"name": _CONTAINER}
            containers.append(container)
        place = f"{spec}.containers.{containers.index(container)}."
        path = binding.container_path
        mount = {"name": _VOLUME, "mountPath": path, "readOnly": binding.read_only}
        self._child(container, "volumeMounts", list, place).append(mount)

    def _drop_mounts(self, path: str) -> None:
        """Take out mounts at or below a path of containers, and Larder's own volume."""
        for key in ("bind_mounts", "environment"):
            self.conflicts.drop(self.config.get(key), key, partial(_in_the_way, path))

    def add_variables(self, variables: Mapping[str, str]) -> None:
        """Add environment variables, to each list of a map by device; a pod sets no others."""
        for name, value in variables.items():
            if "$" in value or not value.isprintable():
                message = f"{name} would be {value!r}, in which Determined replaces $"
                hint = "use a path or a URL without $ and control characters"
                raise ConfigError("config.path", message, where="the cluster file", hint=hint)
        environment = self._section("environment", dict)
        self._drop_from_pod(environment.get("pod_spec"), variables)
        present = environment.get("environment_variables")
        place = "environment.environment_variables"
        if not isinstance(present, dict):
            self._add_to_list(environment, "environment_variables", place, variables)
            return
        devices = [*present, *(name for name in _DEVICES if name not in present)]
        if "gpu" in present and "cuda" not in present:  # gpu is the former name of cuda
            devices.remove("cuda")
        for device in devices:
            self._add_to_list(present, device, f"{place}.{device}", variables)

    def _drop_from_pod(self, pod: Any, variables: Mapping[str, str]) -> None:
        spec = pod.get("spec") if isinstance(pod, dict) else None
        containers = spec.get("containers") if isinstance(spec, dict) else None
        for number, container in enumerate(containers if isinstance(containers, list) else []):
            if _is_container(container):
                place = f"environment.pod_spec.spec.containers.{number}.env"
                self.conflicts.drop(container.get("env"), place, partial(_sets_other, variables))

    def _add_to_list(
        self, inside: dict[str, Any], key: str, place: str, variables: Mapping[str, str]
    ) -> None:
        entries = self._child(inside, key, list, place.removesuffix(key))
        for name, value in variables.items():
            self.conflicts.drop(entries, place, partial(_differs, name, value))
            if f"{name}={value}" not in entries:
                entries.append(f"{name}={value}")

    def drop_variables(self) -> None:
        """Take out variables that say where another version is."""
        self.conflicts.drop(self.config.get("environment"), "environment", is_stale)

    def _section(self, place: str, kind: type[Any]) -> Any:
        """Return the mapping or list of the template at a path of keys; create a missing one."""
        inside, done = self.config, ""
        *path, last = place.split(".")
        for key in path:
            inside = self._child(inside, key, dict, done)
            done += f"{key}."
        return self._child(inside, last, kind, done)

    def _child(self, inside: dict[str, Any], key: str, kind: type[Any], place: str) -> Any:
        return section(inside, key, kind, self.conflicts.where, place)


def _is_container(container: Any) -> bool:
    return isinstance(container, dict) and container.get("name") == _CONTAINER


def _in_the_way(path: str, entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    targets = (_target(entry, key) for key in ("container_path", "mountPath"))
    return entry.get("name") == _VOLUME or any(hides(target, path) for target in targets)


def _differs(name: str, value: str, entry: Any) -> bool:
    other, _, set_to = str(entry).partition("=")
    return overrides(other, set_to, {name: value})


def _sets_other(variables: Mapping[str, str], entry: Any) -> bool:
    return isinstance(entry, dict) and overrides(entry.get("name"), entry.get("value"), variables)


def _target(entry: Mapping[str, Any], key: str) -> str | None:
    path = entry.get(key)
    return container_target(path) if isinstance(path, str) else None
