"""A template of an experiment, with what Larder puts into it, and the conflicts between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from larder.errors import ConfigError
from larder.experiments.consumers.determined.mounts import Binding, container_target
from larder.experiments.consumers.template import refused

_DEVICES = ("cpu", "cuda", "rocm")
_CONTAINER = "determined-container"
"""The container of a pod that runs the experiment."""
_VOLUME = "larder-data"
_PREFERRED = {"AWS_ENDPOINT_URL": "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION": "AWS_REGION"}


@dataclass(frozen=True, slots=True)
class Template:
    """What becomes the config; its own content keeps its order and its comments.

    Attributes:
        config: The experiment; it is modified.
        where: Names the template in errors.
        replaces: Whether what it sets in the place of something is replaced.
        conflicts: What it sets so; see `check_conflicts`.
    """

    config: dict[str, Any]
    where: str
    replaces: bool = False
    conflicts: list[str] = field(default_factory=list)

    def check_conflicts(self) -> None:
        """Refuse what the template sets in the place of something, unless that was replaced."""
        if self.conflicts:
            message = f"the template sets what Larder sets: {'; '.join(self.conflicts)}"
            hint = (
                "remove that; larder emit --force replaces it in the config of a published version"
            )
            raise refused(message, self.where, hint)

    def set_data(self, data: Mapping[str, Any], names: Collection[str]) -> None:
        """Set fields of ``data``, of which the template may have none of these names."""
        section = self._section("data", dict)
        for name in sorted(names & section.keys()):
            self._conflict(f"data.{name}")
            del section[name]
        section.update(data)

    def set_field(self, name: str, value: Any) -> None:
        """Set a field of the experiment."""
        if self.config.get(name) is not None:
            self._conflict(name)
        self.config[name] = value

    def add_mount(self, host_path: str, container_path: str, *, read_only: bool) -> None:
        """Add a bind mount."""
        mount = {"host_path": host_path, "container_path": container_path, "read_only": read_only}
        self._put(
            "bind_mounts",
            self._section("bind_mounts", list),
            mount,
            lambda entry: _target(entry, "container_path") == container_path,
        )

    def add_volume(self, binding: Binding) -> None:
        """Add the volume of a persistent volume claim, through the pod of Kubernetes."""
        pod = self._section("environment.pod_spec", dict)
        pod.setdefault("apiVersion", "v1")
        pod.setdefault("kind", "Pod")
        spec = "environment.pod_spec.spec"
        claim = {"claimName": binding.claim, "readOnly": binding.read_only}
        self._put(
            f"{spec}.volumes",
            self._section(f"{spec}.volumes", list),
            {"name": _VOLUME, "persistentVolumeClaim": claim},
            lambda entry: entry.get("name") == _VOLUME,
        )
        containers = self._section(f"{spec}.containers", list)
        container = next((each for each in containers if _is_container(each)), None)
        if container is None:
            container = {"name": _CONTAINER}
            containers.append(container)
        place, path = f"{spec}.containers.{containers.index(container)}.", binding.container_path
        self._put(
            f"{place}volumeMounts",
            self._child(container, "volumeMounts", list, place),
            {"name": _VOLUME, "mountPath": path, "readOnly": binding.read_only},
            lambda entry: _target(entry, "mountPath") == path or entry.get("name") == _VOLUME,
        )

    def add_variables(self, variables: Mapping[str, str]) -> None:
        """Add environment variables, to each list of a map by device."""
        for name, value in variables.items():
            if "$" in value or not value.isprintable():
                message = f"{name} would be {value!r}, in which Determined replaces $"
                hint = "use a path or a URL without $ and control characters"
                raise ConfigError("config.path", message, where="the cluster file", hint=hint)
        environment = self._section("environment", dict)
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

    def _add_to_list(
        self, section: dict[str, Any], key: str, place: str, variables: Mapping[str, str]
    ) -> None:
        entries = self._child(section, key, list, place.removesuffix(key))
        for name, value in variables.items():
            entry = f"{name}={value}"
            self._put(f"{place}: {name}", entries, entry, partial(_differs, name, value))
            if entries.count(entry) > 1:
                del entries[len(entries) - 1]

    def _put(
        self, place: str, entries: list[Any], entry: Any, is_same: Callable[[Any], bool]
    ) -> None:
        """Append to a list, in the place of those that are the same."""
        kind = type(entry)
        for number in reversed(range(len(entries))):
            if isinstance(entries[number], kind) and is_same(entries[number]):
                self._conflict(place if kind is str else f"{place}.{number}")
                del entries[number]
        entries.append(entry)

    def _conflict(self, place: str) -> None:
        if not self.replaces:
            self.conflicts.append(place)

    def _section(self, place: str, kind: type[Any]) -> Any:
        """A mapping or list of the template, or a new one, at a path of keys."""
        section, done = self.config, ""
        *path, last = place.split(".")
        for key in path:
            section = self._child(section, key, dict, done)
            done += f"{key}."
        return self._child(section, last, kind, done)

    def _child(self, section: dict[str, Any], key: str, kind: type[Any], place: str) -> Any:
        if section.get(key) is None:
            section[key] = kind()
        if not isinstance(section[key], kind):
            noun = "a list" if kind is list else "a mapping"
            raise refused(f"{place}{key} must be {noun}", self.where, "fix the template")
        return section[key]


def _is_container(container: Any) -> bool:
    return isinstance(container, dict) and container.get("name") == _CONTAINER


def _differs(name: str, value: str, entry: str) -> bool:
    """Whether an entry sets a variable, or the one that clients prefer to it, to another value."""
    other, _, set_to = entry.partition("=")
    return other in (name, _PREFERRED.get(name)) and set_to != value


def _target(entry: Mapping[str, Any], key: str) -> str | None:
    path = entry.get(key)
    return container_target(path) if isinstance(path, str) else None
