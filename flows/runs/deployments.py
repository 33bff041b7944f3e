"""Deploys the flows of deployments/prefect.yaml to a work pool, with what their runs need there.

Prefect's own command deploys. Here the file is checked, and less is given to it: no entry for a
dataset that is gone, and of deployments that exist only what the file has changed, so that what
people have changed in Prefect stays. A deployment records its schedules of the file in the schema
of its form, whose other keys Prefect does not look at.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, WorkerFilter, WorkPoolFilter
from prefect.client.schemas.objects import FlowRun, StateType, WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.states import Crashed
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

import larder
from flows.runs.form import CONFIGS
from flows.runs.limits import limit_name
from flows.runs.processes import running_groups
from larder.config.load import names
from larder.errors import ConfigError, FatalError
from larder.names import NAME

FILE = Path("deployments/prefect.yaml")
IMAGE_DIRECTORY = "/opt/larder"
"""Where deployments/docker/Dockerfile puts the checkout."""

TEAM = "LARDER_TEAM"
"""Environment variable: a suffix of the deployments' names."""

PENDING_SECONDS = 300.0
"""How long a worker may take to start the process of a run."""

_SCHEDULES = "x-larder-schedules"
_DEPLOY = ("deploy", "--all", "--prefect-file")
_BLOCK = "prefect.blocks."
_STEPS = ("build", "push", "pull")
"""Their blocks are read when they are carried out, not when they are deployed."""
_PAGE = 200
_LAST_WORDS = 2000


@dataclass(frozen=True, slots=True)
class Deployed:
    """What was deployed: ``FLOW/NAME`` of each, or none if nothing has changed.

    ``workers`` is the number of workers of the pool that are online; ``moved_from`` are pools that
    the deployments were in before; ``left_out`` says what was not deployed, and why.
    """

    pool: str
    names: tuple[str, ...]
    workers: int
    moved_from: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The same for people."""
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
    """Deploy what deployments/prefect.yaml describes, and make the limit of each dataset.

    Args:
        pool: Name of the work pool.
        directory: Where the checkout is on the machines that run the flows; by default here if the
            pool runs processes, otherwise where the image has it.
        team: A suffix of the deployments' names.
        changed_only: Deploy nothing if the file and the names in the config folder are the same as
            in the last deployment.
        replace: Whether to take over deployments of another checkout or work pool.

    Raises:
        ConfigError: ``config.work_pool``: the server has no such pool, or it has no image.
            ``config.invalid_value``: two deployments have the same name, or one would contain a
            secret. ``config.deployment``: one is of another checkout.
        FatalError: ``run.server``: Prefect cannot deploy.
    """
    file = _file()
    entries, left_out = _present(file["deployments"])
    if team:
        _check_team(team)
        entries = [{**entry, "name": f"{entry['name']}-{team}"} for entry in entries]
    with get_client(sync_client=True) as client:
        work_pool = _pool(client, pool, entries)
        directory = directory or _directory(work_pool)
        version = _version(pool, directory)
        _make_limits(client)
        before = {name: each for name in map(_name, entries) if (each := _read(client, name))}
        current = [each for each in before.values() if each.version == version]
        moved = {each.work_pool_name for each in before.values()} - {pool, None}
        if not replace:
            _refuse_others(before, pool, directory)
        if len(current) < len(entries) or not changed_only:
            slugs = {_name(entry): _by_slug(entry) for entry in entries}
            for entry in entries:
                if deployment := before.get(_name(entry)):
                    left_out += _keep(client, entry, deployment)
            _deploy({**file, "deployments": entries}, pool, directory, version, team)
            for name, schedules in slugs.items():
                _complete_schema(client, name, schedules)
        else:
            entries = []
        online = WorkerFilter.model_validate({"status": {"any_": ["ONLINE"]}})
        workers = client.read_workers_for_work_pool(pool, worker_filter=online)
    names_ = tuple(map(_name, entries))
    return Deployed(pool, names_, len(workers), tuple(sorted(filter(None, moved))), tuple(left_out))


def make_pool(name: str) -> None:
    """Make a work pool of processes, if there is none of that name."""
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            with suppress(ObjectAlreadyExists):  # by another checkout, in the meantime
                client.create_work_pool(WorkPoolCreate(name=name, type="process"))


def crash_abandoned_runs(pool: str, message: str, *states: StateType) -> None:
    """Set the runs of a work pool that its only worker has left in some states to Crashed."""
    with get_client(sync_client=True) as client:
        while runs := _runs(client, pool, *states):
            for run in runs:
                client.set_flow_run_state(run.id, Crashed(message=message), force=True)


def crash_dead_runs(
    client: SyncPrefectClient, pool: str, message: str, dead_before: Set[UUID]
) -> set[UUID]:
    """Set runs of a work pool to Crashed whose processes, on this machine, have ended without it.

    That is for the worker to say, but it may have been killed too, or the server was down. So a run
    has to be among those that were dead the last time; returns those that are dead now.
    """
    runs = _runs(client, pool, StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)
    groups = running_groups()
    dead = {run.id for run in runs if is_dead(run, groups)}
    for run in dead & dead_before:
        client.set_flow_run_state(run, Crashed(message=message), force=True)
    return dead


def is_dead(run: FlowRun, running: Set[int]) -> bool:
    """Whether an unfinished run has no process; one that is pending has some minutes to get it."""
    pid = run.infrastructure_pid or ""
    if run.state is not None and run.state.is_pending():
        pending = datetime.now(UTC) - run.state.timestamp
        if pending.total_seconds() < PENDING_SECONDS:  # its process may be that of a first try
            return False
        return not pid.isdigit() or int(pid) not in running
    return pid.isdigit() and int(pid) not in running


def _runs(client: SyncPrefectClient, pool: str, *states: StateType) -> list[FlowRun]:
    """Runs of a work pool that are in some states."""
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": states}}}),
        work_pool_filter=WorkPoolFilter.model_validate({"name": {"any_": [pool]}}),
        limit=_PAGE,
    )


def _file() -> dict[str, Any]:
    """The document of the file, whose deployments have different names, and no secret."""
    try:
        document: dict[str, Any] = YAML(typ="safe").load(FILE)
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
    """``FLOW/NAME``."""
    return f"{entry['entrypoint'].rpartition(':')[2]}/{entry['name']}"


def _check_team(team: str) -> None:
    if not NAME.allows(team):
        hint = "use lower-case letters, digits, _ and -"
        raise ConfigError("config.invalid_value", "not a suffix of a name", where=TEAM, hint=hint)


def _present(entries: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The entries and schedules that name existing files; what is left out, and why."""
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
    """The file in the config folder that the parameters name and that does not exist."""
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
    """The version of the deployments: it changes with whatever their forms and runs depend on."""
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
    """``config.deployment``: one is in another work pool, or of a checkout elsewhere."""
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


def _by_slug(entry: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["slug"]: each for each in entry["schedules"] if each.get("slug")}


def _keep(
    client: SyncPrefectClient, entry: dict[str, Any], deployment: DeploymentResponse
) -> list[str]:
    """Leave of an entry what the file has changed since it was deployed; name what it has lost."""
    schedules = _by_slug(entry)
    deployed = (deployment.parameter_openapi_schema or {}).get(_SCHEDULES, schedules)
    current = {each.slug: each for each in deployment.schedules}
    changed = {slug: each for slug, each in schedules.items() if each != deployed.get(slug)}
    for slug in changed.keys() & current.keys():
        schedule = current[slug].schedule
        anchor = {"anchor_date": str(date)} if (date := getattr(schedule, "anchor_date", 0)) else {}
        changed[slug] = {**anchor, **changed[slug], "active": current[slug].active}
    if changed:  # Prefect deletes those without a slug, such as the UI makes, if it is given some
        for each in deployment.schedules:
            if not each.slug:
                client.request(
                    "PATCH",
                    "/deployments/{id}/schedules/{schedule_id}",
                    path_params={"id": deployment.id, "schedule_id": each.id},
                    # Parameters that are left out would become none.
                    json={"parameters": each.parameters, "slug": str(each.id)},
                )
    entry |= {"paused": deployment.paused, "schedules": list(changed.values())}
    lost = (deployed.keys() - schedules.keys()) & current.keys()
    return [
        f"no longer in the file, but in Prefect: the schedule {slug} of {_name(entry)}"
        for slug in sorted(lost)
    ]


def _complete_schema(
    client: SyncPrefectClient, name: str, schedules: Mapping[str, Mapping[str, Any]]
) -> None:
    """Have the API refuse parameters that the flow does not have, and record the schedules."""
    deployment = client.read_deployment_by_name(name)
    schema = dict(deployment.parameter_openapi_schema or {})
    schema |= {"additionalProperties": False, _SCHEDULES: schedules}
    client.request(
        "PATCH",
        "/deployments/{id}",
        path_params={"id": deployment.id},
        json={"parameter_openapi_schema": schema},
    )


def _make_limits(client: SyncPrefectClient) -> None:
    """Make the limit of each dataset, for one run at a time; those that exist are left alone."""
    for dataset in names(Path(CONFIGS), "datasets"):
        name = limit_name(dataset)
        try:
            client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            limit = GlobalConcurrencyLimitCreate(name=name, limit=1)
            with suppress(ObjectAlreadyExists):
                client.create_global_concurrency_limit(limit)


def _deploy(
    document: Mapping[str, Any], pool: str, directory: str, version: str, team: str
) -> None:
    variables = {"LARDER_POOL": pool, "LARDER_DIRECTORY": directory, "LARDER_DEPLOYED": version}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, FILE.name)
        file.write_text(json.dumps(document, default=str))  # which is YAML, too
        done = subprocess.run(  # noqa: S603 - Prefect's command, with the entries of this checkout
            [sys.executable, "-m", "prefect", "--no-prompt", *_DEPLOY, str(file)],
            env={**os.environ, **variables, TEAM: team},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if done.returncode:
        message = f"Prefect cannot deploy: {' '.join(done.stdout[-_LAST_WORDS:].split())}"
        raise FatalError("run.server", message, where=str(FILE), hint="see PREFECT_API_URL")
