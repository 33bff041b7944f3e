"""``make serve`` in a folder that looks like a checkout."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from larder.store import open_store
from tests.support.checker import check_all
from tests.support.commands import CHECKOUT, Running, Workplace
from tests.support.prefect_server import PROMPT, PrefectServer
from tests.support.processes import wait_until
from tests.support.servers import free_port

OBJECTS = 120
OBJECT_BYTES = 50_000
ON_THEIR_WAY = 8
"""At most, when a run is ended in the middle: what is copied after that is copied again."""

FAST = ["mirror=true", "cluster.runner.batch_bytes=1500 kB"]
SLOW = [*FAST, "cluster.copy.max_bytes_per_second=200 kB"]
Run = dict[str, Any]


class Serving:
    """``make serve``, with a dataset ``files`` that is made of ``source``."""

    def __init__(self, place: Workplace, *flags: str) -> None:
        self.place = place
        self.source = place.folder / "source"
        self.running: Running = place.start(*flags, python=("-m", "flows.serve"))
        pipe = self.running.process.stdout
        assert pipe is not None
        address = pipe.readline()
        assert address.startswith("Prefect "), self.running.wait().err
        self.server = PrefectServer(int(address.rpartition(":")[2]), place.folder)

    def start(self, settings: list[str], dataset: str = "files") -> Run:
        form = {"dataset": dataset, "advanced": {"settings": settings}}
        return self.server.submit("prepare/files", form)

    def processes(self, command: str) -> list[int]:
        """The processes of Prefect with a command, such as ``engine`` for a run."""
        home = f"PREFECT_HOME={self.place.folder / 'data/prefect'}\0".encode()
        ids = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                is_ours = home in (folder / "environ").read_bytes()
            except OSError:
                continue
            if is_ours and command.encode() in b" ".join(words):
                ids.append(int(folder.name))
        return ids

    def copied(self) -> int:
        return len(list(self.place.storage.glob("larder/files/mirror/*")))

    def in_the_middle(self, settings: list[str] = SLOW) -> Run:
        """A run that has copied a few objects, and would take half a minute for the rest."""
        run = self.start(settings)
        wait_until(lambda: ON_THEIR_WAY < self.copied() < OBJECTS)
        return run

    def check_continued(self, unknown: int = ON_THEIR_WAY) -> None:
        """Run again: what was copied is not copied again, but for ``unknown`` objects that were on
        their way when the run was killed; and everything is right.
        """
        before = self.copied()
        assert 0 < before < OBJECTS
        run = self.start(FAST)
        ended = self.server.ended(run)
        assert ended["state_type"] == "COMPLETED", ended["state"]
        lines = self.server.logs(run, "files built")
        (copied,) = [line for line in lines if line.startswith("mirror: started")]
        assert int(copied.split()[2]) <= OBJECTS - before + unknown, (copied, before)
        (version,) = check_all(open_store(str(self.place.storage / "larder/files")))
        assert version


def write_profile(home: Path) -> None:
    """Make Prefect prompt by its profile: ``make serve`` takes nothing from the environment."""
    home.mkdir(parents=True)
    lines = ["active = 'prompt'", "[profiles.prompt]"]
    lines += [f"{name} = '{value}'" for name, value in PROMPT.items()]
    (home / "profiles.toml").write_text("\n".join(lines))


@contextmanager
def serving_in(folder: Path) -> Iterator[Serving]:
    place = Workplace(folder)
    for name in ("flows", "tasks", "larder", "deployments"):
        (folder / name).symlink_to(CHECKOUT / name)
    (folder / "source").mkdir()
    for number in range(OBJECTS):
        (folder / f"source/{number:03}.bin").write_bytes(os.urandom(OBJECT_BYTES))
    place.environment["LARDER_SOURCE"] = str(folder / "source")
    write_profile(folder / "data/prefect")
    (folder / ".env").write_text("PREFECT_SERVER_API_AUTH_STRING=of:another\n")
    database = 'connection_url = "postgresql+asyncpg://nobody@127.0.0.1:9/of-another"\n'
    (folder / "prefect.toml").write_text(f"[server.database]\n{database}")
    serving = Serving(place, "--port", str(free_port()))
    try:
        yield serving
    finally:
        if serving.running.process.poll() is None:
            serving.running.process.send_signal(signal.SIGINT)
            serving.running.wait()
    assert not serving.processes("prefect")
