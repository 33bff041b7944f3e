"""``python -m flows.serve``: a Prefect server, a worker and the deployments, on this machine.

Prefect's settings of the user are for other servers. Everything lies below data/prefect: the
history of runs in SQLite, the logs of server and worker. Prefect runs there, too: files of the
checkout do not set its settings.

``--pool NAME`` runs only the worker of a work pool, for the server that the user names.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID

from flows.runs.configure import bypass_proxy, configure_prefect, need_server
from flows.runs.prefect_settings import load_prefect, startup_seconds
from flows.runs.service_processes import Service, wait_until
from larder.cli.arguments import parser
from larder.cli.exit import run
from larder.cli.output import print_text, tell
from larder.errors import ConfigError, FatalError

if TYPE_CHECKING:
    from flows.runs.deployments import Deployed

FOLDER = Path("data/prefect")
POOL = "larder"
PORT = 4200

_HOST = "127.0.0.1"
_POLL_SECONDS = 1.0
_LOOK_SECONDS = 10.0
_DESCRIPTION = """\
Start a Prefect server, a worker and the deployments of deployments/prefect.yaml on this machine,
until Ctrl-C. The server listens on 127.0.0.1 only; its history is in data/prefect.\
"""
_WORKER_ENDED = "Larder's worker ended during this run"


def serve_command() -> int:
    return run(lambda: main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    flags = parser("python -m flows.serve", _DESCRIPTION)
    flags.add_argument(
        "--port",
        metavar="N",
        type=int,
        help=f"port of the server (default: {PORT}, or any free one if that is taken)",
    )
    flags.add_argument(
        "--pool",
        metavar="NAME",
        help="start no server, but the worker of this work pool on that at PREFECT_API_URL; it "
        "must be the only one of the pool",
    )
    flags.add_argument(
        "--deploy",
        action="store_true",
        help="with --pool, first deploy what has changed, as python -m flows.deploy does",
    )
    namespace = flags.parse_args(arguments)
    if shutil.which("ps") is None:  # with which the runs of a worker are found
        hint = "install it: on Debian, apt-get install procps"
        raise ConfigError("config.missing_package", "there is no program ps", hint=hint)
    if namespace.pool:
        return _until_interrupted(lambda: _work(namespace.pool, namespace.deploy))
    folder = FOLDER.absolute()
    with _only_one(folder) as lock:
        address = f"http://{_HOST}:{_free_port(namespace.port)}"
        lock.write_text(address)
        with chdir(folder):
            _set_environment(folder, address)
        return _until_interrupted(lambda: _serve(folder, address))


def _until_interrupted(serve: Callable[[], NoReturn]) -> int:
    try:
        serve()
    except KeyboardInterrupt:
        tell("stopped")
    return 0


@contextmanager
def _only_one(folder: Path) -> Iterator[Path]:
    lock = folder / "serve.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = lock.open("a")
    except OSError as error:
        hint = "the history of runs is kept there: make it a directory that you may write to"
        message = f"cannot be written: {error.strerror}"
        raise ConfigError("config.path", message, where=str(folder), hint=hint) from None
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message, hint = "this folder is served already", f"see {lock.read_text()}"
            raise ConfigError("config.path", message, where=str(folder), hint=hint) from None
        yield lock


def _free_port(wanted: int | None) -> int:
    for port in (wanted or PORT, 0):
        try:
            with socket.create_server((_HOST, port)) as listener:
                chosen: int = listener.getsockname()[1]
                return chosen
        except (OSError, OverflowError) as error:
            if wanted:
                message = f"cannot listen on port {wanted}: {error}"
                hint = "choose another one, or leave --port out"
                raise ConfigError("config.invalid_flag", message, hint=hint) from None
    raise AssertionError("the system chooses a free port")


def _set_environment(folder: Path, address: str) -> None:
    """Set Prefect's settings for this process and its children."""
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        if not name.startswith("PREFECT_LOGGING_"):
            del os.environ[name]
    os.environ |= {
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": f"{address}/api",
        # Otherwise the UI asks port 4200.
        "PREFECT_SERVER_UI_API_URL": f"{address}/api",
        # In memory, slots of a server that has ended would never be free again.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
            "prefect.server.concurrency.lease_storage.filesystem"
        ),
    }
    bypass_proxy()
    configure_prefect()


def _serve(folder: Path, address: str) -> NoReturn:
    """Start everything, print the address, and keep it running until an interrupt."""
    port = address.rpartition(":")[2]
    with ExitStack() as stack:
        tell("starting a Prefect server; the first time takes half a minute")
        server = Service("server", folder / "server.log", "--host", _HOST, "--port", port)
        stack.callback(server.stop)
        with chdir(folder):
            load_prefect()
        from flows.runs.prefect_workers import make_pool

        _await(server, folder)
        make_pool(POOL)
        deployed = _deploy(POOL, replace=True)
        worker = stack.enter_context(_worker_of(POOL, folder / "worker.log"))
        print_text(
            f"Prefect      {address}\n"
            f"deployments  {address}/deployments ({len(deployed.names)} new or changed)\n"
            f"logs         {server.log}, {worker.log}\n"
            "Ctrl-C stops everything; runs in progress continue where they were when run again"
        )
        while True:
            time.sleep(_POLL_SECONDS)
            if server.check():
                _await(server, folder)
            worker.check()


def _work(pool: str, deploy: bool) -> NoReturn:
    with need_server().guard():
        load_prefect()
        from flows.runs.flow_run import server_errors
        from flows.runs.prefect_workers import announce_worker, make_pool, withdraw_worker

        with server_errors():
            make_pool(pool)
            announce_worker(pool)
            try:
                if deploy:
                    tell(f"deployed {len(_deploy(pool).names)} new or changed")
                with _worker_of(pool, None) as worker:
                    tell(f"the worker of the work pool {pool} has started")
                    while True:
                        time.sleep(_POLL_SECONDS)
                        worker.check()
            finally:
                withdraw_worker(pool)


def _deploy(pool: str, *, replace: bool = False) -> Deployed:
    from flows.runs.deployments import deploy_all
    from tasks.artifacts import team

    tell("deploying")
    deployed = deploy_all(pool, team=team(), changed_only=True, replace=replace)
    for line in deployed.left_out:
        tell(line)
    return deployed


@contextmanager
def _worker_of(pool: str, log: Path | None) -> Iterator[Service]:
    """Run the only worker of a work pool within a ``with`` block."""
    from prefect.client.schemas.objects import StateType

    from flows.runs.prefect_workers import crash_abandoned_runs, worker_name

    abandoned = StateType.PENDING, StateType.RUNNING, StateType.CANCELLING
    crash_abandoned_runs(pool, _WORKER_ENDED, *abandoned)
    threading.Thread(target=_look_for_dead_runs, args=(pool,), daemon=True).start()
    worker = Service(
        "worker",
        log,
        *("--pool", pool, "--type", "process", "--name", worker_name()),
        # Runs that have begun notice by themselves that the worker is gone.
        again=lambda: crash_abandoned_runs(pool, _WORKER_ENDED, StateType.PENDING),
    )
    try:
        yield worker
    finally:
        worker.stop()


def _look_for_dead_runs(pool: str) -> NoReturn:
    """End dead runs that no other process would end, and tidy up after killed runs."""
    from httpx import HTTPError  # Prefect's
    from prefect import get_client
    from prefect.exceptions import PrefectException

    from flows.runs.limits import free_slots_of_killed_runs
    from flows.runs.prefect_workers import crash_dead_runs, explain_crashes

    dead: set[UUID] = set()
    while True:
        time.sleep(_LOOK_SECONDS)
        with suppress(HTTPError, PrefectException), get_client(sync_client=True) as client:
            dead = crash_dead_runs(client, pool, dead)
            explain_crashes(client, pool)
            free_slots_of_killed_runs(client)


def _await(server: Service, folder: Path) -> None:
    """Wait until the server answers; ``run.server``: another folder's server has the port."""
    from httpx import HTTPError, HTTPStatusError  # Prefect's
    from prefect import get_client
    from prefect.settings import (
        PREFECT_API_REQUEST_TIMEOUT,
        PREFECT_CLIENT_MAX_RETRIES,
        temporary_settings,
    )

    def answers() -> bool:
        server.check_started()
        home = ""  # of a server that is not Prefect's, or asks for a password
        try:
            with (
                get_client(sync_client=True) as client,
                suppress(ValueError, LookupError, TypeError),
            ):
                home = client.request("GET", "/admin/settings").json()["home"]
        except HTTPError as error:
            if not isinstance(error, HTTPStatusError) or error.response.is_server_error:
                return False
        if home != str(folder):
            message = "another server has taken the port, or this one asks for a password"
            hint = "run it again, or set PREFECT_API_AUTH_STRING in profiles.toml beside this file"
            raise FatalError("run.server", message, where=str(server.log), hint=hint)
        return True

    seconds = startup_seconds()
    # Prefect would repeat a request for minutes, and not see that the server has ended.
    once = {PREFECT_CLIENT_MAX_RETRIES: 0, PREFECT_API_REQUEST_TIMEOUT: seconds}
    with temporary_settings(once):
        answered = wait_until(answers, seconds)
    if not answered:
        message = "Prefect's server does not answer"
        raise FatalError("run.timeout", message, where=str(server.log), hint="see this file")
