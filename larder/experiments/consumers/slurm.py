"""Slurm: an sbatch script, with environment variables that name the place of the data.

The template's lines stay as they are. Below its ``#SBATCH`` lines come the variables, as in a job
of Kubernetes; every step gets the variables, whatever ``sbatch --export`` says. For a download, a
step with a task on each node runs ``larder warm`` before the line that launches the training. srun
numbers the ranks (`larder.readers.launcher`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from larder.config.models.cluster import Cluster, Downloads
from larder.errors import ConfigError
from larder.experiments.consumers.determined.mounts import bind, check_patterns, normal
from larder.experiments.consumers.template_conflicts import (
    Conflicts,
    addresses,
    bucket_access,
    comments,
    header_lines,
    is_stale,
    node_count_refusal,
    overrides,
    refused,
)
from larder.experiments.delivery import ConfigFile, ConfigRequest, DeliveredVersion

DELIVERIES: tuple[str, ...] = ("bind_mount", "stream", "download")
TEMPLATE: str | None = "slurm/default.sh"

_DIRECTIVE = "#SBATCH"
_SHELL = re.compile(r"#!.*[/\s](?:ba|da|k|z)?sh(?:\s.*)?")
_NODES = re.compile(r"\s(?:--nodes(?:=|\s+)|-N\s*)(\S+)")
_LAUNCH = re.compile(r"(?:(?:exec|time)\s+|\w+=\S*\s+)*(?:srun|mpirun|mpiexec|torchrun)\b")
_SET = re.compile(r"""(?<![\w${])((?:AWS|LARDER)_\w+)\+?=("[^"]*"|'[^']*'|[^\s;&|,)]*)""")
_USED = re.compile(r"\$\{?(\w+)\}?")
_ONLY_SET = re.compile(r"""\s*(?:export\s+)?\w+=(?:"[^"`(\\]*"|'[^']*'|[\w./:@%+,-]*)\s*""")
# srun takes the job's --ntasks-per-gpu from the variable, and refuses it beside --ntasks-per-node.
_ONCE_A_NODE = (
    "env -u SLURM_NTASKS_PER_GPU "
    'srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1'
)


def config_files(request: ConfigRequest) -> tuple[ConfigFile, ...]:
    delivered, cluster, where = request.delivered, request.cluster, request.where
    lines = _lines(request.template, where)
    conflicts = Conflicts(where, delivered.replaces)
    access = _access(delivered, cluster)
    lines = [_without_conflict(lines, number, access, conflicts) for number in range(len(lines))]
    conflicts.check()
    end = _end_of_directives(lines)
    body, delivery = lines[end:], delivered.delivery.delivery
    if delivery == "download":
        launch = _launch(body, where)
        body[launch:launch] = _warming(delivered, _downloads(cluster))
    header = (*header_lines(request), "Training code reads it with: data = larder.open()")
    parts = [
        *lines[:end],
        *_node_count(lines[:end], cluster, where),
        *comments(header).splitlines(),
        "export SLURM_EXPORT_ENV=ALL",
        *_exports(request),
        *body,
    ]
    text = "".join(f"{line}\n" for line in parts)
    return (ConfigFile("job.sh", text, replaced=tuple(conflicts.places)),)


def command(output: Path, names: Sequence[str], cluster: Cluster) -> str:
    return f"sbatch {shlex.quote(str(output / 'job.sh'))}"


def _lines(template: Mapping[str, Any], where: str) -> list[str]:
    """Split a shell script into lines; refuse other texts, and scripts that sbatch refuses."""
    text = template.get("script")
    if not isinstance(text, str) or not _SHELL.fullmatch(text.partition("\n")[0]):
        message = "not a script of a shell: it does not begin with a line such as #!/bin/bash"
        raise refused(message, where, "use a file *.sh that sbatch accepts")
    if "\r" in text or "\0" in text:
        raise refused("it has DOS line breaks or NUL", where, "sbatch refuses them: remove them")
    return text.removesuffix("\n").split("\n")


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _without_conflict(
    lines: Sequence[str], number: int, access: Mapping[str, str], conflicts: Conflicts
) -> str:
    """Replace a line that names another version, region or endpoint by ``:``, and record it.

    Refuse to replace a line that does more.
    """
    line, previous = lines[number], lines[number - 1]
    is_read = line.startswith(_DIRECTIVE) or not _is_comment(line)
    sets = _SET.findall(line) if is_read else []
    names = [name for name, value in sets if _is_other(name, value.strip("'\""), access)]
    if not names:
        return line
    conflicts.places.extend(f"line {number + 1}: {name}" for name in names)
    if conflicts.replaces and (previous.endswith("\\") or not _ONLY_SET.fullmatch(line)):
        message = f"line {number + 1} sets {names[0]}, but not that alone"
        raise refused(message, conflicts.where, "remove that from the line")
    return ":"


def _is_other(name: str, value: str, access: Mapping[str, str]) -> bool:
    """Whether a variable that a line sets names another version, region or endpoint."""
    used = _USED.fullmatch(value)
    if used and used[1] == name:  # passed on to a container, or printed
        return False
    return is_stale(name) or overrides(name, access.get(used[1], value) if used else value, access)


def _end_of_directives(lines: Sequence[str]) -> int:
    """Count the lines up to the last option that sbatch reads; it stops at the first command."""
    head = takewhile(lambda line: not line.strip() or _is_comment(line), lines)
    return max(
        number for number, line in enumerate(head, 1) if number == 1 or line.startswith(_DIRECTIVE)
    )


def _node_count(head: Sequence[str], cluster: Cluster, where: str) -> Iterator[str]:
    """Yield the option with the number of nodes if it is missing; refuse another number."""
    options = [line.removeprefix(_DIRECTIVE) for line in head if line.startswith(_DIRECTIVE)]
    counts = [count for line in options for count in _NODES.findall(line.partition(" #")[0])]
    if not counts:
        yield f"{_DIRECTIVE} --nodes={cluster.nodes.count}"
    elif counts[-1] != str(cluster.nodes.count):
        raise node_count_refusal(counts[-1], cluster, where)


def _exports(request: ConfigRequest) -> Iterator[str]:
    delivered, cluster = request.delivered, request.cluster
    variables = dict(addresses(delivered, request.contents, _root(delivered, cluster)))
    variables |= _access(delivered, cluster)
    for name, value in variables.items():
        if not value.isprintable():
            message = f"{name} would be {value!r}"
            hint = "use a path or a URL without control characters"
            raise ConfigError("config.path", message, where=f"cluster {cluster.name}", hint=hint)
        yield f"export {name}={shlex.quote(value)}"


def _access(delivered: DeliveredVersion, cluster: Cluster) -> dict[str, str]:
    """Return the variables for reaching the bucket; empty if training reads a directory."""
    if delivered.delivery.delivery == "bind_mount":
        return {}
    downloads = cluster.nodes.downloads
    return bucket_access(
        cluster, f"{normal(downloads.container_path)}/cache" if downloads else None
    )


def _root(delivered: DeliveredVersion, cluster: Cluster) -> str:
    where, delivery = f"cluster {cluster.name}", delivered.delivery.delivery
    root = delivered.root.rstrip("/")
    if delivery == "bind_mount":
        mounts = cluster.nodes.mounts
        root = bind(delivered.storage_url, mounts, where=f"{where}: nodes.mounts").data_path
    elif delivery == "download":
        root = normal(_downloads(cluster).container_path)
    if delivery != "stream":
        root = f"{root.rstrip('/')}/larder/{delivered.dataset}"
    check_patterns(root, where=where)
    return root


def _downloads(cluster: Cluster) -> Downloads:
    if cluster.nodes.downloads is None:
        message, hint = "a download needs a directory on the nodes", "set nodes.downloads"
        where = f"cluster {cluster.name}: nodes.downloads"
        raise ConfigError("config.invalid_value", message, where=where, hint=hint)
    return cluster.nodes.downloads


def _launch(body: Sequence[str], where: str) -> int:
    for number, (previous, line) in enumerate(pairwise(("", *body))):
        if _LAUNCH.match(line) and not previous.endswith("\\"):
            return number
    message = "no line begins with srun, mpirun, mpiexec or torchrun, before which to download"
    raise refused(message, where, "begin the line that launches the training with one of them")


def _warming(delivered: DeliveredVersion, downloads: Downloads) -> tuple[str, ...]:
    """Write a step that downloads the version on every node; the job ends if the step fails."""
    place = normal(downloads.host_path)
    warm = shlex.join(["larder", "warm", delivered.location, "--to", place])
    cache = shlex.quote(f"{place}/cache")
    return (f"LARDER_CACHE_DIR={cache} \\", f"{_ONCE_A_NODE} \\", f"{warm} || exit", "")
