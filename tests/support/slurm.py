"""A real Slurm of one node, from Debian's packages: `.ci/install-slurm` installs it."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from getpass import getuser
from pathlib import Path

from tests.support.servers import free_port, served_folder, server_process

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
"""A user's PATH may lack where Debian has the servers."""

_CONFIG = """\
ClusterName=larder
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge
CredType=cred/munge
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4
PartitionName=all Nodes={host} Default=YES
"""


def slurm_available() -> bool:
    return all(map(_program, _PROGRAMS))


def _program(name: str) -> str:
    return shutil.which(name, path=_PATH) or ""


@contextmanager
def slurm() -> Iterator[dict[str, str]]:
    """The environment in which its commands find it; jobs start once its node has registered."""
    with served_folder("larder-slurm-") as folder, ExitStack() as running:
        controller_port, node_port = free_port(), free_port()
        config = folder / "slurm.conf"
        config.write_text(
            _CONFIG.format(
                folder=folder,
                user=getuser(),
                host=socket.gethostname().partition(".")[0],
                controller_port=controller_port,
                node_port=node_port,
            )
        )
        _munge(folder, running)
        for name, port in (("slurmctld", controller_port), ("slurmd", node_port)):
            command = [_program(name), "-D", "-f", str(config)]
            running.enter_context(server_process(command, folder / f"{name}.out", port))
        yield {**os.environ, "SLURM_CONF": str(config)}


def _munge(folder: Path, running: ExitStack) -> None:
    """Start what the others authenticate with; it goes on by itself until it is stopped."""
    (folder / "key").touch(0o600)
    (folder / "key").write_bytes(os.urandom(128))
    names = {"key-file": "key", "socket": "munge", "pid-file": "pid"}
    names |= {"log-file": "log", "seed-file": "seed"}
    places = [f"--{flag}={folder / name}" for flag, name in names.items()]
    subprocess.run([_program("munged"), "--force", *places], check=True)
    stop = [_program("munged"), "--stop", f"--socket={folder / 'munge'}"]
    running.callback(lambda: subprocess.run(stop, check=True))
