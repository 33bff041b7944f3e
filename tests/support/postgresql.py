"""A real PostgreSQL, from Debian's package: `.ci/install-postgresql` installs it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers import free_port, served_folder

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
_USER = "postgres"


def postgresql_available() -> bool:
    return bool(PROGRAMS)


@dataclass(frozen=True, slots=True)
class PostgreSQL:
    """A server on 127.0.0.1 with one user and a database of the same name."""

    port: int
    user: str
    password: str

    def ask(self, program: str, *arguments: str) -> str:
        where = ("--host=127.0.0.1", f"--port={self.port}", f"--username={self.user}")
        done = subprocess.run(
            [PROGRAMS[-1] / program, *where, *arguments],
            env={**os.environ, "PGPASSWORD": self.password},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout.strip()


@contextmanager
def postgresql(user: str, password: str) -> Iterator[PostgreSQL]:
    """Serve an empty database, as the image ``postgres`` does for POSTGRES_USER."""
    with served_folder("larder-postgresql-") as folder:
        (folder / "password").write_text(password)
        user_of_server = None
        if os.geteuid() == 0:  # as which it refuses to run
            user_of_server = _USER
            for path in (folder, folder / "password"):
                shutil.chown(path, _USER)

        def control(program: str, *arguments: str) -> None:
            subprocess.run(
                [PROGRAMS[-1] / program, f"--pgdata={folder}/data", *arguments],
                user=user_of_server,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                check=True,
            )

        passwords = (f"--pwfile={folder}/password", "--auth=scram-sha-256")
        control("initdb", f"--username={user}", *passwords, "--no-sync")
        server = PostgreSQL(free_port(), user, password)
        options = f"-c listen_addresses=127.0.0.1 -c port={server.port} -c unix_socket_directories="
        control("pg_ctl", "start", "--wait", f"--log={folder}/log", f"--options={options}")
        try:
            server.ask("createdb", user)
            yield server
        finally:
            control("pg_ctl", "stop", "--wait", "--mode=immediate")
