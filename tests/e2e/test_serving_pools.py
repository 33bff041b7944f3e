"""``flows.serve --pool``: the only worker of its pool, which deploys only if told to."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.runs import serve_command
from flows.runs.deployments import FILE
from flows.runs.prefect_workers import worker_name
from tests.support.errors import larder_error
from tests.support.processes import CHECKOUT

pytestmark = pytest.mark.push
HERE = socket.gethostname()


class StartedError(Exception):
    """The worker would start now."""


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_server) -> Callable[..., int]:
    """Runs the command in a checkout with one deployment, until it starts its worker."""

    def start(*_: Any) -> None:
        raise StartedError

    for name in ("flows", "configs"):
        (tmp_path / name).symlink_to(CHECKOUT / name)
    (tmp_path / FILE).parent.mkdir()
    text = (CHECKOUT / FILE).read_text()
    (tmp_path / FILE).write_text(text.partition("  - name: files\n")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", prefect_server.url)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setattr("prefect.context.GLOBAL_SETTINGS_CONTEXT", None)  # of other tests
    monkeypatch.setattr(serve_command, "_worker_of", start)
    return lambda *flags: serve_command.main(["--pool", "served", *flags])


@pytest.fixture
def online(prefect_server) -> Callable[[str, str], None]:
    def beat(pool: str, name: str) -> None:
        prefect_server.post("/work_pools/", {"name": pool, "type": "process"})
        prefect_server.post(f"/work_pools/{pool}/workers/heartbeat", {"name": name})

    return beat


@pytest.mark.parametrize(
    ("pool", "name"),
    [("unknown", "ProcessWorker 1"), ("elsewhere", "node-7:1"), ("here", f"{HERE}:{os.getppid()}")],
)
def test_a_pool_with_another_worker_is_refused(serve, online, pool, name):
    online(pool, name)
    with larder_error("config.work_pool", "--pool"):
        serve("--pool", pool)


def test_a_worker_of_this_machine_that_is_gone_does_not_count(serve, online):
    with subprocess.Popen([sys.executable, "--version"]) as process:
        process.wait()
    online("left", f"{HERE}:{process.pid}")
    with pytest.raises(StartedError):
        serve("--pool", "left")


def test_the_pool_has_a_worker_until_the_command_ends(serve, prefect_server, monkeypatch):
    def online() -> list[str]:
        workers = prefect_server.post("/work_pools/served/workers/filter", {})
        return [worker["name"] for worker in workers]

    def start(*_: Any) -> None:
        assert online() == [worker_name()]
        raise StartedError

    monkeypatch.setattr(serve_command, "_worker_of", start)
    with pytest.raises(StartedError):
        serve()
    assert not online()


def test_only_deploy_makes_deployments(serve, prefect_server, monkeypatch, capsys):
    monkeypatch.setenv("LARDER_TEAM", "served")
    with pytest.raises(StartedError):
        serve()
    assert not prefect_server.has("prepare/digits-served")
    with pytest.raises(StartedError):
        serve("--deploy")
    assert prefect_server.has("prepare/digits-served")
    assert "LARDER_POOL" not in os.environ, "runs inherit what the worker has"
    os.rename("configs", "renamed")
    os.mkdir("configs")
    with pytest.raises(StartedError):
        serve("--deploy")
    assert "not deployed: prepare/digits, as there is no configs" in capsys.readouterr().err
