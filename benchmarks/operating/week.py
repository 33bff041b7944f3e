"""A week of a platform team in miniature: ``make week ARGS="--runs 200 --seed 2"``.

One Prefect server with a password, on PostgreSQL, behind a proxy that delays requests by up to
three seconds. Two checkouts with a work pool each share a source and a storage. Runs of all kinds
come at random and some are cancelled. Server, workers, checkouts and runs are killed or stopped,
and started again.

Every run ends, with a reason if it is not Completed. No slot is taken for more than 80 seconds
without a run that has it. The published versions are right. The script prints its figures, and
fails at the first of these rules that is broken.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from larder.store import open_store
from tests.support.checker import check_all
from tests.support.commands import Workplace
from tests.support.postgresql import PostgreSQL, postgresql, postgresql_available
from tests.support.prefect_server import FINAL, PrefectServer
from tests.support.processes import CHECKOUT
from tests.support.servers import free_port

AT_ONCE = 6
"""Most runs that are scheduled or going on."""

DISTURBED = 3
"""Runs between two disturbances."""

DEAD_SECONDS = 80.0
"""The server takes back the slot of a killed run after 60 s, and looks every 15 s."""

LONG_SECONDS = 30.0
END_SECONDS = 900.0
START_SECONDS = 600.0
"""For a server that starts on a machine that is busy."""

AUTH = "admin:a password"
TEAMS = ("one", "two")
GOING_ON = ("PENDING", "RUNNING", "PAUSED", "CANCELLING")
OBJECTS, OBJECT_BYTES = 40, 50_000
FAST = ["mirror=true", "cluster.runner.batch_bytes=500 kB"]
SLOW = [*FAST, "cluster.copy.max_bytes_per_second=200 kB"]
Run = dict[str, Any]
T = TypeVar("T")


def insist(ask: Callable[[], T]) -> T:
    """The answer of a server that may be down for a while."""
    enough = time.monotonic() + START_SECONDS
    while time.monotonic() < enough:
        with suppress(OSError, AssertionError):
            return ask()
        time.sleep(0.5)
    return ask()


class Service:
    """A command that is started again when it has ended, as by systemd."""

    def __init__(self, command: list[str], place: Path, environment: dict[str, str]) -> None:
        self._command, self._place, self._environment = command, place, environment
        self._start()

    def _start(self) -> None:
        with (self._place / "service.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self._command],
                cwd=self._place,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def check(self) -> None:
        if self.process.poll() is not None:
            self._start()

    def end(self, number: int = signal.SIGTERM) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        self.process.wait(120)


class SlowProxy(socketserver.ThreadingTCPServer):
    """Passes bytes on, those of clients late: mostly a little, at most by three seconds."""

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, port: int, random: Random) -> None:
        self._port, self._random = port, random
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)

    def finish_request(self, request: Any, _client: object) -> None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as server:
            back = threading.Thread(target=self._pass_on, args=(server, request, 0), daemon=True)
            back.start()
            self._pass_on(request, server, 3.0)
            back.join()

    def _pass_on(self, source: socket.socket, target: socket.socket, seconds: float) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(seconds * self._random.random() ** 8)
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        pass  # of a connection that a client ended


class Week:
    """Everything that runs, and what has been seen of it."""

    def __init__(self, folder: Path, database: PostgreSQL, stack: ExitStack, seed: int) -> None:
        self.random = Random(seed)
        self.folder = folder
        port = free_port()
        self.server = PrefectServer(port, folder, auth=AUTH)
        address = f"127.0.0.1:{database.port}/{database.user}"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "LARDER_"))}
        (folder / "server").mkdir()
        self._server = Service(
            ["prefect", "server", "start", "--no-ui", "--port", str(port)],
            folder / "server",
            clean
            | {
                "PREFECT_HOME": str(folder / "server"),
                "PREFECT_SERVER_API_AUTH_STRING": AUTH,
                "PREFECT_API_AUTH_STRING": AUTH,
                "PREFECT_API_DATABASE_CONNECTION_URL": (
                    f"postgresql+asyncpg://{database.user}:{database.password}@{address}"
                ),
                "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
                    "prefect.server.concurrency.lease_storage.filesystem"
                ),
                "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
                "DO_NOT_TRACK": "1",
            },
        )
        stack.callback(self._server.end)
        insist(lambda: self.server.get("/health"))
        proxy = SlowProxy(port, Random(seed + 1))
        stack.callback(proxy.server_close)
        stack.callback(proxy.shutdown)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()

        self.source = folder / "source"
        self.source.mkdir()
        for number in range(OBJECTS):
            self.add(f"{number:03}")
        self._teams = [self._checkout(team, proxy.server_address[1]) for team in TEAMS]
        for team in self._teams:
            stack.callback(team.end)
        self.runs: list[Run] = []
        self.disturbances: Counter[str] = Counter()
        self.dead: Counter[str] = Counter()

    def add(self, name: str) -> None:
        """One more object in the source of ``files``."""
        (self.source / f"{name}.new").write_bytes(self.random.randbytes(OBJECT_BYTES))
        (self.source / f"{name}.new").rename(self.source / f"{name}.bin")

    def _checkout(self, team: str, port: int) -> Service:
        folder = self.folder / team
        folder.mkdir()
        place = Workplace(
            folder,
            LARDER_TEAM=team,
            LARDER_SOURCE=str(self.source),
            PREFECT_API_URL=f"http://127.0.0.1:{port}/api",
            PREFECT_API_AUTH_STRING=AUTH,
        )
        for name in ("flows", "tasks", "larder", "deployments"):
            (folder / name).symlink_to(CHECKOUT / name)
        (self.folder / "data").mkdir(exist_ok=True)
        (folder / "data").symlink_to(self.folder / "data")
        if not (folder / "data/source").exists():
            done = place.run("data/source/digits", python=("-m", "larder.demo.digits"))
            assert done.status == 0, done.err
        return Service(
            ["flows.serve", "--pool", f"pool-{team}", "--deploy"], folder, place.environment
        )

    @property
    def storage(self) -> Path:
        return self.folder / "data/local"

    def check(self) -> None:
        """Start again what has ended."""
        for service in (self._server, *self._teams):
            service.check()

    def unfinished(self) -> int:
        ids = {"id": {"any_": [run["id"] for run in self.runs]}}
        states = insist(lambda: self._all_runs({"flow_runs": ids}))
        self.runs = states
        return sum(run["state_type"] not in FINAL for run in states)

    def _all_runs(self, question: dict[str, Any]) -> list[Run]:
        runs: list[Run] = []
        while page := self.server.post(
            "/flow_runs/filter", {**question, "limit": 200, "offset": len(runs)}
        ):
            runs += page
        return runs

    def submit(self) -> None:
        """A run of any kind, by any team, which is due in some seconds."""
        team, kind = self.random.choice(TEAMS), self.random.random()
        form: dict[str, Any] = {"dataset": "files", "advanced": {"settings": FAST}}
        name = f"prepare/files-{team}"
        if kind < 0.45:
            if self.random.random() < 0.7:
                self.add(f"more-{len(self.runs)}")
            form["advanced"]["settings"] = self.random.choice((FAST, SLOW))
        elif kind < 0.6:
            name, form = f"prepare/digits-{team}", {"dataset": "digits"}
        elif kind < 0.7:
            name, form = f"refresh/refresh-{team}", {"datasets": ["files", "digits"]}
        elif kind < 0.8:
            name, form = (
                f"verify/verify-{team}",
                {"dataset": self.random.choice(("files", "digits"))},
            )
        elif kind < 0.85:
            name, form = f"clean/clean-{team}", {"dataset": "files", "keep": 2, "older_than": "0h"}
        elif kind < 0.9:
            form["plan"] = True
        else:
            form["advanced"] = {"other_dataset": "elsewhere"}
        soon = time.time() + self.random.uniform(0, 10)
        due = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(soon))
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": due}}
        self.runs.append(insist(lambda: self.server.submit(name, form, state=state)))

    def cancel(self) -> None:
        """Cancel a run that goes on."""
        runs = [run for run in self.runs if run["state_type"] == "RUNNING"]
        if runs:
            run = self.random.choice(runs)
            cancelling = {"state": {"type": "CANCELLING"}}
            insist(lambda: self.server.post(f"/flow_runs/{run['id']}/set_state", cancelling))
            self.disturbances["run: cancelled"] += 1

    def disturb(self) -> None:
        """Kill or stop something."""
        kind = self.random.choice(("server", "server", "checkout", "worker", "run", "run"))
        number = self.random.choice((signal.SIGTERM, signal.SIGKILL))
        if kind == "server":
            self._server.end(number)
            time.sleep(self.random.uniform(0, 10))
        elif kind == "checkout":
            self.random.choice(self._teams).end(number)
        else:
            word = b"prefect.engine" if kind == "run" else b"worker\0start"
            processes = self._processes(word)
            if not processes:
                return
            os.kill(self.random.choice(processes), number)
        self.disturbances[f"{kind}: {number.name}"] += 1
        print(f"{time.strftime('%X')} {kind}: {number.name}", flush=True)

    def _processes(self, word: bytes) -> list[int]:
        """The processes of the checkouts with this in their command lines."""
        ids = []
        for folder in sorted(Path("/proc").glob("[0-9]*")):
            with suppress(OSError):
                ours = f"PREFECT_HOME={self.folder}".encode() in (folder / "environ").read_bytes()
                if ours and word in (folder / "cmdline").read_bytes():
                    ids.append(int(folder.name))
        return ids

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See for how long slots are taken that no run has, within a ``with`` block."""
        ended, since = threading.Event(), dict[str, float]()

        def watch() -> None:
            while not ended.wait(1):
                try:
                    limits = self.server.post("/v2/concurrency_limits/filter", {})
                    going_on = {"state": {"type": {"any_": GOING_ON}}}
                    runs = self._all_runs({"flow_runs": going_on})
                except (OSError, AssertionError):
                    continue
                now = time.monotonic()
                for limit in limits:
                    name = limit["name"]
                    have = sum(
                        name in run["tags"] or name == f"deployment:{run['deployment_id']}"
                        for run in runs
                    )
                    if limit["active_slots"] <= have:
                        since.pop(name, None)
                        continue
                    seconds = now - since.setdefault(name, now)
                    self.dead[name] = max(self.dead[name], round(seconds))
                    if seconds >= LONG_SECONDS:
                        print(f"{time.strftime('%X')} {name}: {seconds:.0f} s", flush=True)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def report(self) -> None:
        """Print the figures."""
        states = Counter(run["state_name"] for run in self.runs)
        reasons = Counter(
            f"{run['state_name']}: {(run['state']['message'] or '').split('/')[0][:90]}"
            for run in self.runs
            if run["state_type"] != "COMPLETED"
        )
        print(f"states: {dict(states)}")
        print(f"disturbances: {dict(self.disturbances)}")
        print(f"seconds that nobody had a slot which was taken: {dict(self.dead)}")
        for reason, count in reasons.most_common():
            print(f"{count:4} {reason}")


def go_on(week: Week, runs: int) -> None:
    """Runs and disturbances, until all runs have ended."""
    for team in TEAMS:
        while not insist(partial(week.server.has, f"clean/clean-{team}")):
            week.check()
            time.sleep(1)
    while len(week.runs) < runs:
        week.check()
        if week.unfinished() < AT_ONCE:
            week.submit()
            if len(week.runs) % DISTURBED == 0:
                week.disturb()
                week.check()  # or a server that was killed would not answer what follows
            if week.random.random() < 0.1:
                week.cancel()
        time.sleep(week.random.uniform(0, 4))
    enough = time.monotonic() + END_SECONDS
    while week.unfinished() and time.monotonic() < enough:
        week.check()
        time.sleep(2)


def check(week: Week, runs: int) -> None:
    """Every run ends with a reason, and no slot is left."""
    with week.watched():
        try:
            go_on(week, runs)
        finally:
            week.report()
        stuck = [run for run in week.runs if run["state_type"] not in FINAL]
        assert not stuck, stuck
        for run in week.runs:
            assert run["state_type"] == "COMPLETED" or run["state"]["message"], run

        def taken() -> list[str]:
            limits = insist(lambda: week.server.post("/v2/concurrency_limits/filter", {}))
            return [limit["name"] for limit in limits if limit["active_slots"]]

        enough = time.monotonic() + DEAD_SECONDS
        while taken() and time.monotonic() < enough:
            week.check()
            time.sleep(1)
        assert not taken()
    assert max(week.dead.values(), default=0) <= DEAD_SECONDS, week.dead
    for dataset in ("files", "digits"):
        if list(week.storage.glob(f"larder/{dataset}/tags/latest.json")):
            assert check_all(open_store(str(week.storage / f"larder/{dataset}")))


def main() -> None:
    parser = argparse.ArgumentParser(description="A week of a platform team in miniature.")
    parser.add_argument("--runs", type=int, default=12, help="ten take three to six minutes")
    parser.add_argument("--seed", type=int, default=1, help="what happens, and when")
    asked = parser.parse_args()
    if not postgresql_available():
        sys.exit("PostgreSQL is not installed: run .ci/install-postgresql")
    with (
        tempfile.TemporaryDirectory() as folder,
        postgresql("prefect", "a-password") as database,
        ExitStack() as stack,
    ):
        check(Week(Path(folder), database, stack, asked.seed), asked.runs)


if __name__ == "__main__":
    main()
