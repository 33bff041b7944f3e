"""Deployment of the flows of deployments/prefect.yaml to a work pool, with limits of datasets.

Prefect's own command deploys. This module checks the file, and leaves out entries and schedules of
datasets or clusters that are gone. For deployments that exist, the module also leaves out schedules
that the file has not changed, and keeps pauses, so that people's changes to both in Prefect stay. A
deployment records its team and the file's schedules in the schema of its form, whose other keys
Prefect ignores, so that one request writes everything.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

from httpx import HTTPError, HTTPStatusError  # Prefect's
from prefect import Flow, get_client
from prefect.cli.deploy import _core
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, WorkerFilter, WorkPoolFilter
from prefect.client.schemas.objects import FlowRun, StateType, Worker, WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectException
from prefect.states import Crashed
from prefect.utilities.callables import ParameterSchema, parameter_schema
from rich.console import Console  # Prefect's
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

import larder
from flows.runs.form import CONFIGS
from flows.runs.limits import limit_name
from flows.runs.processes import running, running_groups
from larder.config.load import names
from larder.errors import ConfigError, FatalError
from larder.names import NAME

FILE = Path("deployments/prefect.yaml")
IMAGE_DIRECTORY = "/opt/larder"
"""Directory of the checkout in the image of deployments/docker/Dockerfile."""

TEAM = "LARDER_TEAM"
"""Environment variable: a suffix of the deployments' names."""

PENDING_SECONDS = 300.0
"""Time that a worker may take to start the process of a run."""

_SCHEDULES = "x-larder-schedules"
_TEAM = "x-larder-team"
_BLOCK = "prefect.blocks."
_STEPS = ("build", "push", "pull")
"""Steps of an entry whose blocks are read when the step runs, not when the entry is deployed."""
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Deployed:
    """The result of `deploy_all`.

    ``names`` has the ``FLOW/NAME`` of each deployed entry; empty if nothing has changed.
    ``workers`` is the number of workers of the pool that are online. ``moved_from`` are earlier
    pools of the deployments. ``left_out`` has messages about entries and schedules that were not
    deployed, or that the file has lost.
    """

    pool: str
    names: tuple[str, ...]
    workers: int
    moved_from: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Describe the deployments for people."""
        lines = [f"deployed to the work pool {self.pool}:", *(f"  {name}" for name in self.names)]
        if not self.names:
            lines = [f"the deployments in the work pool {self.pool} are current"]
        lines += self.left_out
        lines += [f"they are no longer in the work pool {pool}" for pool in self.moved_from]
        if not self.workers:
            start = f"prefect worker start --pool {self.pool}"
            lines.append(f"no worker is online, so their runs would be late: {start}")
        return lines


def deploy_all(
    pool: str,
    directory: str | None = None,
    *,
    team: str = "",
    changed_only: bool = False,
    replace: bool = False,
) -> Deployed:
    """Deploy the flows of deployments/prefect.yaml, and make the limit of each dataset.

    Args:
        pool: Name of the work pool.
        directory: Path of the checkout on the machines that run the flows; by default this checkout
            if the pool runs processes, otherwise the checkout in the image.
        team: A suffix of the deployments' names.
        changed_only: Deploy nothing if the file and the names in the config folder are the same as
            in the last deployment.
        replace: Whether to take over deployments of another checkout or work pool.

    Raises:
        ConfigError: ``config.work_pool``: the server has no such pool, or the pool has no image.
            ``config.invalid_value``: two deployments have the same name, or a deployment would
            contain a secret. ``config.deployment``: a deployment is of another checkout
            or work pool.
        FatalError: ``run.server``: Prefect cannot deploy.
    """
    file = _file()
    _check_team(team)
    suffix = f"-{team}" if team else ""
    in_file = [f"{_name(entry)}{suffix}" for entry in file["deployments"]]
    entries, left_out = _present(file["deployments"])
    entries = [{**entry, "name": f"{entry['name']}{suffix}"} for entry in entries]
    with get_client(sync_client=True) as client:
        work_pool = _pool(client, pool, entries)
        directory = directory or _directory(work_pool)
        version = _version(pool, directory)
        _make_limits(client)
        before = {name: each for name in in_file if (each := _read(client, name))}
        existing = {name: before[name] for name in map(_name, entries) if name in before}
        recorded = filter(_recorded, existing.values())
        current = [deployment for deployment in recorded if deployment.version == version]
        moved = {each.work_pool_name for each in existing.values()} - {pool, None}
        if not replace:
            _refuse_others(existing, pool, directory)
        left_out += _lost(client, pool, directory, team, {each.id for each in before.values()})
        if len(current) < len(entries) or not changed_only:
            variables = {"POOL": pool, "DIRECTORY": directory, "DEPLOYED": version, "TEAM": team}
            for entry in entries:
                record = {_SCHEDULES: _by_slug(entry), _TEAM: team}
                if deployment := existing.get(_name(entry)):
                    left_out += _keep(client, entry, deployment)
                with patch.dict(os.environ, {f"LARDER_{k}": v for k, v in variables.items()}):
                    _deploy(entry, file, record)
        else:
            entries = []
        workers = _online(client, pool)
    names_ = tuple(map(_name, entries))
    return Deployed(pool, names_, len(workers), tuple(sorted(filter(None, moved))), tuple(left_out))


def make_pool(name: str) -> None:
    """Make a work pool of processes, unless a pool has that name."""
    with get_client(sync_client=True) as client, suppress(ObjectAlreadyExists):
        client.create_work_pool(WorkPoolCreate(name=name, type="process"))


def worker_name() -> str:
    """Return the name of the worker that this process starts."""
    return f"{socket.gethostname()}:{os.getpid()}"


def announce_worker(pool: str) -> None:
    """Announce this process as the worker of a work pool; refuse a pool with another worker.

    Runs of the other worker would be ended as if their worker were gone. Prefect calls a killed
    worker online for a while; a worker of this machine that is gone does not count.

    Raises:
        ConfigError: ``config.work_pool``.
    """
    with get_client(sync_client=True) as client:
        for worker in _online(client, pool):
            host, _, pid = worker.name.rpartition(":")
            here = host == socket.gethostname() and pid.isdigit()
            if not here or (int(pid) != os.getpid() and int(pid) in running()):
                message = f"the work pool {pool} has a worker: {worker.name}"
                hint = "stop it, or choose another pool; a killed worker is online for two minutes"
                raise ConfigError("config.work_pool", message, where="--pool", hint=hint)
        client.send_worker_heartbeat(pool, worker_name())  # before its worker, which starts slowly


def withdraw_worker(pool: str) -> None:
    """Withdraw this process's worker, so that another machine may start a worker at once."""
    with suppress(HTTPError, PrefectException), get_client(sync_client=True) as client:
        path = {"work_pool_name": pool, "name": worker_name()}
        client.request("DELETE", "/work_pools/{work_pool_name}/workers/{name}", path_params=path)


def _online(client: SyncPrefectClient, pool: str) -> list[Worker]:
    online = WorkerFilter.model_validate({"status": {"any_": ["ONLINE"]}})
    return client.read_workers_for_work_pool(pool, worker_filter=online)


def crash_abandoned_runs(pool: str, message: str, *states: StateType) -> None:
    """Set the runs of a work pool that its only worker has left in some states to Crashed."""
    with get_client(sync_client=True) as client:
        while runs := _runs(client, pool, *states):
            for run in runs:
                client.set_flow_run_state(run.id, Crashed(message=message), force=True)


def crash_dead_runs(
    client: SyncPrefectClient, pool: str, message: str, dead_before: Set[UUID]
) -> set[UUID]:
    """Set unfinished runs of a work pool to Crashed if their processes on this machine have ended.

    Usually the worker does so, unless it was killed, too, or the server was down. To leave time for
    the worker, only runs in ``dead_before`` are set, which the previous call returned. Returns the
    runs that are dead now.
    """
    runs = _runs(client, pool, StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)
    groups = running_groups()
    dead = {run.id for run in runs if is_dead(run, groups)}
    for run in dead & dead_before:
        client.set_flow_run_state(run, Crashed(message=message), force=True)
    return dead


def is_dead(run: FlowRun, running: Set[int]) -> bool:
    """Whether an unfinished run has no process; a pending run has some minutes to get a process."""
    pid = run.infrastructure_pid or ""
    if run.state is not None and run.state.is_pending():
        pending = datetime.now(UTC) - run.state.timestamp
        if pending.total_seconds() < PENDING_SECONDS:  # the process may belong to an earlier try
            return False
        return not pid.isdigit() or int(pid) not in running
    return pid.isdigit() and int(pid) not in running


def _runs(client: SyncPrefectClient, pool: str, *states: StateType) -> list[FlowRun]:
    """Return the runs of a work pool in some states."""
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": states}}}),
        work_pool_filter=WorkPoolFilter.model_validate({"name": {"any_": [pool]}}),
        limit=_PAGE,
    )


def _file() -> dict[str, Any]:
    """Read the file; refuse deployments with equal names or a secret."""
    try:
        text = json.dumps(YAML(typ="safe").load(FILE), default=str)  # dates as strings
        document: dict[str, Any] = json.loads(text)
        deployments = document["deployments"]
        entries = [_name(entry) for entry in deployments]
    except OSError:
        hint = "run the command in the root directory of a checkout"
        raise ConfigError("config.unreadable", "no such file", where=str(FILE), hint=hint) from None
    except (YAMLError, TypeError, KeyError, AttributeError) as error:
        message = f"not a list of deployments: {' '.join(str(error).split())}"
        raise ConfigError("config.invalid_value", message, where=str(FILE)) from None
    repeated = [name for name, count in Counter(entries).items() if count > 1]
    if repeated:
        message = f"there are two deployments {repeated[0]}"
        hint = "give one of them another name"
        raise ConfigError("config.invalid_value", message, where=str(FILE), hint=hint)
    kept = [
        {key: value for key, value in each.items() if key not in _STEPS} for each in deployments
    ]
    if _BLOCK in str(kept):
        message = "a block is read when deployed: its value would be plain text in the deployment"
        hint = "refer to it in the base job template of the work pool"
        raise ConfigError("config.invalid_value", message, where=str(FILE), hint=hint)
    return document


def _name(entry: Mapping[str, Any]) -> str:
    """Return ``FLOW/NAME``."""
    return f"{entry['entrypoint'].rpartition(':')[2]}/{entry['name']}"


def _check_team(team: str) -> None:
    if team and not NAME.allows(team):
        hint = "use lower-case letters, digits, _ and -"
        raise ConfigError("config.invalid_value", "not a suffix of a name", where=TEAM, hint=hint)


def _present(entries: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return entries and schedules that name existing files, and messages about all others."""
    present, left_out = [], []
    for entry in entries:
        schedules = entry.get("schedules") or []
        if missing := _missing(entry):
            left_out.append(f"not deployed: {_name(entry)}, as there is no {missing}")
            continue
        for missing in filter(None, map(_missing, schedules)):
            left_out.append(f"not deployed: a schedule of {_name(entry)}, as there is no {missing}")
        present.append({**entry, "schedules": [each for each in schedules if not _missing(each)]})
    return present, left_out


def _missing(entry: Mapping[str, Any]) -> Path | None:
    """Return the missing file of the config folder that the parameters name, if any."""
    parameters = entry.get("parameters") or {}
    for folder in ("dataset", "cluster"):
        name = parameters.get(folder)
        if name and name not in names(Path(CONFIGS), f"{folder}s"):
            return Path(CONFIGS, f"{folder}s", f"{name}.yaml")
    return None


def _pool(client: SyncPrefectClient, name: str, entries: list[dict[str, Any]]) -> WorkPool:
    try:
        pool = client.read_work_pool(name)
    except ObjectNotFound:
        hint = f"create it: prefect work-pool create --type process {name}"
        message = f"there is no work pool {name}"
        raise ConfigError("config.work_pool", message, where="POOL", hint=hint) from None
    image = pool.base_job_template.get("variables", {}).get("properties", {}).get("image")
    given = [entry["work_pool"].get("job_variables", {}).get("image") for entry in entries]
    if image is not None and not image.get("default") and not all(given):
        message = f"the work pool {name} has no image, and Prefect's does not have Larder"
        hint = "write one into the default of image in its base job template"
        raise ConfigError("config.work_pool", message, where="POOL", hint=hint)
    return pool


def _directory(pool: WorkPool) -> str:
    return str(Path.cwd()) if pool.type == "process" else IMAGE_DIRECTORY


def _version(pool: str, directory: str) -> str:
    """Return a version of deployments that depends on all inputs of their forms and runs."""
    options = [names(Path(CONFIGS), folder) for folder in ("datasets", "clusters")]
    parts = (larder.__version__, FILE.read_text(), options, pool, directory)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _read(client: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    try:
        return client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


def _refuse_others(
    deployments: Mapping[str, DeploymentResponse], pool: str, directory: str
) -> None:
    """Refuse deployments in another pool or of another checkout (``config.deployment``)."""
    for name, each in deployments.items():
        directories = [step.get("directory") for step in _steps(each)]
        if each.work_pool_name not in (pool, None) or directories not in ([directory], []):
            place = f"{', '.join(filter(None, directories))} in the work pool {each.work_pool_name}"
            message = f"{name} is deployed from {place}"
            hint = f"set {TEAM} to a suffix for the names of yours, or take it over with --replace"
            raise ConfigError("config.deployment", message, where="PREFECT_API_URL", hint=hint)


def _steps(deployment: DeploymentResponse) -> Iterator[Mapping[str, Any]]:
    for step in deployment.pull_steps or []:
        yield from step.values()


def _recorded(deployment: DeploymentResponse) -> dict[str, Any]:
    """Return the record of a deployment; empty if Prefect's own command deployed it."""
    schema = deployment.parameter_openapi_schema or {}
    return {key: schema[key] for key in (_SCHEDULES, _TEAM) if key in schema}


def _lost(
    client: SyncPrefectClient, pool: str, directory: str, team: str, in_file: Set[UUID]
) -> list[str]:
    """Describe the deployments of this checkout and team that the file has lost."""
    in_pool = WorkPoolFilter.model_validate({"name": {"any_": [pool]}})
    here, lines = {"directory": directory}, []
    for page in count():
        deployments = client.read_deployments(
            work_pool_filter=in_pool, limit=_PAGE, offset=page * _PAGE
        )
        for each in deployments:
            ours = _recorded(each).get(_TEAM) == team and here in _steps(each)
            if ours and each.id not in in_file:
                name = f"{client.read_flow(each.flow_id).name}/{each.name}"
                delete = f"prefect deployment delete {name}"
                lines.append(f"no longer in the file, but in Prefect: {name} ({delete})")
        if len(deployments) < _PAGE:
            break
    return lines


def _by_slug(entry: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["slug"]: each for each in entry["schedules"] if each.get("slug")}


def _keep(
    client: SyncPrefectClient, entry: dict[str, Any], deployment: DeploymentResponse
) -> list[str]:
    """Leave in an entry only schedules that the file has changed since the deployment.

    The deployment keeps its pauses. Returns a line for each schedule that the file has lost.
    """
    schedules = _by_slug(entry)
    deployed = _recorded(deployment).get(_SCHEDULES, {})
    current = {each.slug: each for each in deployment.schedules}
    changed = {slug: each for slug, each in schedules.items() if each != deployed.get(slug)}
    for slug in changed.keys() & current.keys():
        schedule = current[slug].schedule
        anchor = {"anchor_date": str(date)} if (date := getattr(schedule, "anchor_date", 0)) else {}
        changed[slug] = {**anchor, **changed[slug], "active": current[slug].active}
    if changed:  # Prefect, if given schedules, deletes all without a slug, such as the UI's
        for each in deployment.schedules:
            if not each.slug:
                client.request(
                    "PATCH",
                    "/deployments/{id}/schedules/{schedule_id}",
                    path_params={"id": deployment.id, "schedule_id": each.id},
                    # Prefect would empty parameters that are left out.
                    json={"parameters": each.parameters, "slug": str(each.id)},
                )
    entry |= {"paused": deployment.paused, "schedules": list(changed.values())}
    lost = (deployed.keys() - schedules.keys()) & current.keys()
    return [
        f"no longer in the file, but in Prefect: the schedule {slug} of {_name(entry)}"
        for slug in sorted(lost)
    ]


def _make_limits(client: SyncPrefectClient) -> None:
    """Make the limit of each dataset, for one run at a time; existing limits are left alone."""
    for dataset in names(Path(CONFIGS), "datasets"):
        limit = GlobalConcurrencyLimitCreate(name=limit_name(dataset), limit=1)
        with suppress(ObjectAlreadyExists):
            client.create_global_concurrency_limit(limit)


class _Schema(ParameterSchema, extra="allow"):
    """The schema of a form, with a record."""


def _deploy(entry: dict[str, Any], document: dict[str, Any], record: Mapping[str, Any]) -> None:
    """Deploy an entry with Prefect's command; its schema refuses parameters that the flow lacks."""

    def complete(flow: Flow[..., Any]) -> _Schema:
        schema = parameter_schema(flow).model_dump(exclude_unset=True)
        return _Schema.model_validate({**schema, "additionalProperties": False, **record})

    async def command() -> None:
        async with get_client() as client:
            await _core._run_single_deploy(
                entry,
                document,
                client=client,
                console=Console(quiet=True),
                is_interactive=lambda: False,
            )

    # Prefect leaves the folder of the flow first in the path, where copy.py hides Python's own.
    path = patch.object(sys, "path", list(sys.path))
    try:
        with path, patch.object(_core, "parameter_schema", complete):
            asyncio.run(command())
    except Exception as error:
        failed = error if isinstance(error, HTTPError) else error.__cause__
        refused = isinstance(failed, HTTPStatusError) and failed.response.is_client_error
        if isinstance(failed, HTTPError) and not refused:
            raise failed from None
        message = f"Prefect cannot deploy {_name(entry)}: {' '.join(str(error).split())}"
        hint = "correct the entry; `prefect deploy --help` describes its fields"
        raise FatalError("run.server", message, where=str(FILE), hint=hint) from error
