"""Deploys the flows of deployments/prefect.yaml to a work pool, with what their runs need there.

Prefect's own command deploys. Here the file is checked, and the names of the config folder are
compared with those that the forms of the last deployment offer.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, WorkerFilter, WorkPoolFilter
from prefect.client.schemas.objects import DeploymentSchedule, StateType, WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound
from prefect.states import Crashed
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

import larder
from flows.runs.form import CONFIGS
from flows.runs.limits import limit_name
from larder.config.load import names
from larder.errors import ConfigError, FatalError

FILE = Path("deployments/prefect.yaml")
IMAGE_DIRECTORY = "/opt/larder"
"""Where deployments/docker/Dockerfile puts the checkout."""

_DEPLOY = ("deploy", "--all", "--prefect-file", str(FILE))
_BLOCK = "prefect.blocks."
_STEPS = ("build", "push", "pull")
"""Their blocks are read when they are carried out, not when they are deployed."""
_PAGE = 200
_LAST_WORDS = 2000


@dataclass(frozen=True, slots=True)
class Deployed:
    """What was deployed: ``FLOW/NAME`` of each, or none if nothing has changed.

    ``workers`` is the number of workers of the pool that are online; ``moved_from`` are pools that
    the deployments were in before.
    """

    pool: str
    names: tuple[str, ...]
    workers: int
    moved_from: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The same for people."""
        lines = [f"deployed to the work pool {self.pool}:", *(f"  {name}" for name in self.names)]
        if not self.names:
            lines = [f"the deployments in the work pool {self.pool} are current"]
        lines += [f"they are no longer in the work pool {pool}" for pool in self.moved_from]
        if not self.workers:
            start = f"prefect worker start --pool {self.pool}"
            lines.append(f"no worker is online, so their runs would be late: {start}")
        return lines


def deploy_all(pool: str, directory: str | None = None, *, changed_only: bool = False) -> Deployed:
    """Deploy what deployments/prefect.yaml describes, and make the limit of each dataset.

    Args:
        pool: Name of the work pool.
        directory: Where the checkout is on the machines that run the flows; by default here if the
            pool runs processes, otherwise where the image has it.
        changed_only: Deploy nothing if the file and the names in the config folder are the same as
            in the last deployment.

    Raises:
        ConfigError: ``config.work_pool``: the server has no such pool. ``config.invalid_value``:
            two deployments have the same name, or one would contain a secret.
        FatalError: ``run.server``: Prefect cannot deploy.
    """
    entries = _entries()
    with get_client(sync_client=True) as client:
        work_pool = _pool(client, pool)
        directory = directory or _directory(work_pool)
        version = _version(pool, directory)
        _make_limits(client)
        before = [each for name in entries if (each := _deployment(client, name))]
        current = [each for each in before if each.version == version]
        moved = {each.work_pool_name for each in before} - {pool, None}
        if len(current) < len(entries) or not changed_only:
            with _schedules_kept(client, before):
                _deploy(pool, directory, version)
        else:
            entries = []
        online = WorkerFilter.model_validate({"status": {"any_": ["ONLINE"]}})
        workers = client.read_workers_for_work_pool(pool, worker_filter=online)
    return Deployed(pool, tuple(entries), len(workers), tuple(sorted(filter(None, moved))))


def make_pool(name: str) -> None:
    """Make a work pool of processes, if there is none of that name."""
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(name)
        except ObjectNotFound:
            client.create_work_pool(WorkPoolCreate(name=name, type="process"))


def crash_abandoned_runs(pool: str, message: str) -> None:
    """Set the runs of a work pool that were in progress when its only worker ended to Crashed."""
    states = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]
    unfinished = FlowRunFilter.model_validate({"state": {"type": {"any_": states}}})
    in_pool = WorkPoolFilter.model_validate({"name": {"any_": [pool]}})
    with get_client(sync_client=True) as client:
        while runs := client.read_flow_runs(
            flow_run_filter=unfinished, work_pool_filter=in_pool, limit=_PAGE
        ):
            for run in runs:
                client.set_flow_run_state(run.id, Crashed(message=message), force=True)


def _entries() -> list[str]:
    """``FLOW/NAME`` of the deployments in the file."""
    try:
        deployments = YAML(typ="safe").load(FILE)["deployments"]
        entries = [
            f"{entry['entrypoint'].rpartition(':')[2]}/{entry['name']}" for entry in deployments
        ]
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
    return entries


def _pool(client: SyncPrefectClient, name: str) -> WorkPool:
    try:
        return client.read_work_pool(name)
    except ObjectNotFound:
        hint = f"create it: prefect work-pool create --type process {name}"
        message = f"there is no work pool {name}"
        raise ConfigError("config.work_pool", message, where="POOL", hint=hint) from None


def _directory(pool: WorkPool) -> str:
    return str(Path.cwd()) if pool.type == "process" else IMAGE_DIRECTORY


def _version(pool: str, directory: str) -> str:
    """The version of the deployments: it changes with whatever their forms and runs depend on."""
    options = [names(Path(CONFIGS), folder) for folder in ("datasets", "clusters")]
    parts = (larder.__version__, FILE.read_text(), options, pool, directory)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def _deployment(client: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    try:
        return client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


@contextmanager
def _schedules_kept(
    client: SyncPrefectClient, deployments: Sequence[DeploymentResponse]
) -> Iterator[None]:
    """Leave schedules that exist on or off, whatever is deployed within a ``with`` block.

    Prefect deletes those without a slug, such as the UI makes.
    """
    before = {schedule.id: schedule for each in deployments for schedule in each.schedules}

    def change(deployment: DeploymentResponse, schedule: DeploymentSchedule, **fields: Any) -> None:
        # Parameters that are left out would become none.
        client.request(
            "PATCH",
            "/deployments/{id}/schedules/{schedule_id}",
            path_params={"id": deployment.id, "schedule_id": schedule.id},
            json={"parameters": schedule.parameters, **fields},
        )

    for each in deployments:
        for schedule in each.schedules:
            if not schedule.slug:
                change(each, schedule, slug=str(schedule.id))
    try:
        yield
    finally:
        for each in deployments:
            for schedule in client.read_deployment(each.id).schedules:
                active = before.get(schedule.id, schedule).active
                if schedule.active != active:
                    change(each, schedule, active=active)


def _make_limits(client: SyncPrefectClient) -> None:
    """Make the limit of each dataset, for one run at a time; those that exist are left alone."""
    for dataset in names(Path(CONFIGS), "datasets"):
        name = limit_name(dataset)
        try:
            client.read_global_concurrency_limit_by_name(name)
        except ObjectNotFound:
            client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=name, limit=1))


def _deploy(pool: str, directory: str, version: str) -> None:
    variables = {"LARDER_POOL": pool, "LARDER_DIRECTORY": directory, "LARDER_DEPLOYED": version}
    done = subprocess.run(  # noqa: S603 - Prefect's command, with the file of this checkout
        [sys.executable, "-m", "prefect", "--no-prompt", *_DEPLOY],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        message = f"Prefect cannot deploy: {' '.join(done.stdout[-_LAST_WORDS:].split())}"
        raise FatalError("run.server", message, where=str(FILE), hint="see PREFECT_API_URL")
