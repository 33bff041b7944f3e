"""Deployment of the flows of deployments/prefect.yaml to a work pool, with limits of datasets.

Of deployments that exist, schedules that the file has not changed stay as they are, and so do
pauses: people change both in Prefect. For that, a deployment records its team and the file's
schedules in the schema of its form, whose other keys Prefect ignores. Prefect's own command has no
place for such a record.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from uuid import UUID

from httpx import HTTPStatusError  # Prefect's
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate
from prefect.client.schemas.filters import WorkPoolFilter
from prefect.client.schemas.objects import WorkPool
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.utilities.callables import parameter_schema
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

import larder
from flows.runs.form import CONFIGS
from flows.runs.limits import limit_name
from flows.runs.prefect_workers import online_workers
from larder.config.load import names
from larder.config.urls import secret_at
from larder.errors import ConfigError, FatalError
from larder.names import NAME
from tasks.artifacts import TEAM

FILE = Path("deployments/prefect.yaml")
IMAGE_DIRECTORY = "/opt/larder"
"""Directory of the checkout in the image of deployments/docker/Dockerfile."""

_SCHEDULES = "x-larder-schedules"
_TEAM = "x-larder-team"
_OF_SCHEDULE = ("slug", "active", "parameters", "max_scheduled_runs")
"""Fields of a schedule beside its times."""
_STEPS = ("build", "push", "pull")
"""Steps of all entries. The server refuses the first two, as it refuses all unknown fields."""
_READ_AT_ONCE = re.compile(r"prefect\.(blocks|variables)\.")
_VARIABLE = re.compile(r"\{\{\s*\$(\w+)\s*\}\}")
_REFUSED = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Deployed:
    """The result of `deploy_all`; ``names`` has the ``FLOW/NAME`` of each deployed entry.

    ``workers`` is the number of workers of the pool that are online. ``left_out`` has messages
    about what was not deployed, or what the file has lost; or about all differences.
    """

    pool: str
    names: tuple[str, ...]
    workers: int
    left_out: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        lines = [f"deployed to the work pool {self.pool}:", *(f"  {name}" for name in self.names)]
        if not self.names:
            lines = [f"the deployments in the work pool {self.pool} are current"]
        lines += self.left_out
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
    diff: bool = False,
) -> Deployed:
    """Deploy the flows of deployments/prefect.yaml, and make the limit of each dataset.

    `flows.runs.deploy_command` describes the arguments; ``team`` is a suffix of the names.

    ConfigError: ``config.work_pool``: the server has no such pool, or the pool has no image;
    ``config.invalid_value``; ``config.deployment``: a deployment of another checkout or work pool.
    FatalError: ``run.server``: Prefect cannot deploy.
    """
    document = _file()
    _check_team(team)
    suffix = f"-{team}" if team else ""
    in_file = [f"{_name(entry)}{suffix}" for entry in document["deployments"]]
    entries, left_out = _present(document["deployments"])
    with get_client(sync_client=True) as client:
        work_pool = _pool(client, pool, entries)
        here = str(Path.cwd()) if work_pool.type == "process" else IMAGE_DIRECTORY
        directory = directory or here
        version = _version(pool, directory)
        variables = {"POOL": pool, "DIRECTORY": directory, "DEPLOYED": version, "TEAM": team}
        common = {step: document[step] for step in _STEPS if document.get(step)}
        entries = [
            _filled({**common, **entry, "name": f"{entry['name']}{suffix}"}, variables)
            for entry in entries
        ]
        before = {name: each for name in in_file if (each := _read(client, name))}
        existing = {name: before[name] for name in map(_name, entries) if name in before}
        recorded = filter(_recorded, existing.values())
        current = [deployment for deployment in recorded if deployment.version == version]
        if not replace:
            _refuse_others(existing, pool, directory)
        left_out += _lost(client, pool, directory, team, {each.id for each in before.values()})
        if diff:
            for entry in entries:
                left_out += _changes(entry, existing.get(_name(entry)))
            return Deployed(pool, (), 0, left_out=tuple(left_out))
        _make_limits(client, team)
        if len(current) == len(entries) and changed_only:
            entries = []
        for entry in entries:
            record = {_SCHEDULES: _by_slug(entry), _TEAM: team}
            if deployment := existing.get(_name(entry)):
                left_out += _keep(client, entry, deployment)
            _deploy(client, entry, deployment, record)
        workers = online_workers(client, pool)
    return Deployed(pool, tuple(map(_name, entries)), len(workers), tuple(left_out))


def _filled(entry: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Replace ``{{ $NAME }}`` in an entry by environment variables, as Prefect's command does.

    ``config.secret``: the entry would show a secret to all users of Prefect.
    """
    values = os.environ | {f"LARDER_{name}": value for name, value in variables.items()}

    def value(match: re.Match[str]) -> str:
        return json.dumps(values.get(match[1], match[0]))[1:-1]

    text = _VARIABLE.sub(value, json.dumps(entry))
    if secret_at(text) is not None:
        message = f"the deployment {_name(entry)} must not contain a secret"
        hint = "name a block in the base job template of the work pool"
        raise ConfigError("config.secret", message, where=str(FILE), hint=hint)
    filled: dict[str, Any] = json.loads(text)
    return filled


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
    if _READ_AT_ONCE.search(json.dumps([{**each, "pull": None} for each in deployments])):
        message = "a block or variable is read when deployed, and would be plain text there"
        hint = "refer to it in the base job template of the work pool"
        raise ConfigError("config.invalid_value", message, where=str(FILE), hint=hint)
    return document


def _name(entry: Mapping[str, Any]) -> str:
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
    """Leave in an entry only schedules that the file has changed, and the deployment's pauses.

    Returns a line for each schedule that the file has lost.
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


def _changes(entry: Mapping[str, Any], deployment: DeploymentResponse | None) -> Iterator[str]:
    name, in_file = _name(entry), _by_slug(entry)
    if deployment is None:
        yield f"only in the file: {name}"
        return
    fields = {field: entry.get(field) for field in ("paused", "parameters", "tags", "version")}
    yield from _differing(name, fields, deployment.model_dump(mode="json"))
    for each in deployment.schedules:
        what = f"the schedule {each.slug or each.id} of {name}"
        if schedule := in_file.pop(each.slug or "", None):
            server = each.model_dump(mode="json") | each.schedule.model_dump(mode="json")
            yield from _differing(what, schedule, server)
        else:
            yield f"only in Prefect: {what}"
    for slug in in_file:
        yield f"only in the file: the schedule {slug} of {name}"


def _differing(what: str, fields: Mapping[str, Any], server: Mapping[str, Any]) -> Iterator[str]:
    """Name the fields that have another value on the server; false, empty and missing are equal."""
    for field, value in fields.items():
        if (there := server.get(field)) != value and (there or value):
            yield f"in Prefect, {field} of {what} is {json.dumps(there)}"


def _make_limits(client: SyncPrefectClient, team: str) -> None:
    """Make the limit of each dataset, for one run at a time; existing limits are left alone."""
    for dataset in names(Path(CONFIGS), "datasets"):
        limit = GlobalConcurrencyLimitCreate(name=limit_name(dataset, team), limit=1)
        with suppress(ObjectAlreadyExists):
            client.create_global_concurrency_limit(limit)


def _deploy(
    client: SyncPrefectClient,
    entry: Mapping[str, Any],
    deployment: DeploymentResponse | None,
    record: Mapping[str, Any],
) -> None:
    """Make or change a deployment in one request; it refuses parameters that the flow lacks."""
    fields = {field: value for field, value in entry.items() if value is not None}
    name, pool = fields.pop("name"), fields.pop("work_pool")
    steps, limit = fields.pop("pull", []), fields.pop("concurrency_limit", None)
    options = {**limit} if isinstance(limit, dict) else {"limit": limit}
    variables: dict[str, Any] = pool.get("job_variables") or {}
    if team := record[_TEAM]:
        variables = {**variables, "env": {TEAM: team, **(variables.get("env") or {})}}
    try:
        # An entry names the file of its flow, whose folder would hide Python's own copy.py.
        flow = resolve_name(entry["entrypoint"].replace(".py:", ":").replace("/", "."))
        schema = parameter_schema(flow).model_dump(exclude_unset=True)
        unset = {"description": flow.description, "version": None, "tags": [], "parameters": {}}
        fields = {
            **unset,
            **fields,
            "pull_steps": steps,
            "work_pool_name": pool["name"],
            "work_queue_name": pool.get("work_queue_name"),
            "job_variables": variables,
            "concurrency_limit": options.pop("limit"),
            "concurrency_options": options or None,
            "parameter_openapi_schema": {**schema, "additionalProperties": False, **record},
            "enforce_parameter_schema": True,
        }
        if schedules := fields.pop("schedules"):  # an empty list would delete people's
            fields["schedules"] = list(map(_schedule, schedules))
        if deployment:
            path = {"id": deployment.id}
            client.request("PATCH", "/deployments/{id}", path_params=path, json=fields)
        else:
            fields |= {"name": name, "flow_id": str(client.create_flow(flow))}
            client.request("POST", "/deployments/", json=fields)
    except (ImportError, AttributeError, ValueError, HTTPStatusError) as error:
        if isinstance(error, HTTPStatusError) and error.response.status_code not in _REFUSED:
            raise
        reason = _reason(error) if isinstance(error, HTTPStatusError) else str(error)
        message = f"Prefect cannot deploy {_name(entry)}: {' '.join(reason.split())}"
        hint = "correct the entry; docs/how-to/deployments.md describes its fields"
        raise FatalError("run.server", message, where=str(FILE), hint=hint) from error


def _reason(error: HTTPStatusError) -> str:
    answer = error.response.json()
    fields = (
        f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}"
        for each in answer.get("exception_detail", ())
    )
    return str(answer.get("detail") or "; ".join(fields))


def _schedule(each: Mapping[str, Any]) -> dict[str, Any]:
    """Make a schedule of the API, whose times are a document of their own."""
    times = dict(each)
    rest = {field: times.pop(field) for field in _OF_SCHEDULE if field in times}
    return {**rest, "schedule": times}
