"""``make demo-imagenet``: its commands can be pasted, and its servers can be started again."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.support.commands import Workplace
from tests.support.demo import _PORTS

pytestmark = pytest.mark.push

DEMO = ("-m", "tests.support.demo")


@pytest.fixture
def taken_ports() -> Iterator[None]:
    """Something else listens on the ports that a first demo prefers."""
    with ExitStack() as stack:
        for port in _PORTS:
            with suppress(OSError):  # taken indeed
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


@pytest.mark.usefixtures("taken_ports")
def test_the_commands_that_the_demo_prints_continue_it(reporting):
    done = reporting.run("--count", "40", python=DEMO)
    assert done.status == 0, done.err
    config = reporting.folder / "out/aws-us-west-2/imagenet/experiment.yaml"
    assert done.out.endswith(config.read_text())
    asked = [line[2:] for line in done.err.splitlines() if line.startswith("$ ")]
    assert len(asked) == 2
    for line in asked:  # a shell accepts it unchanged
        words = subprocess.run(
            ["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert "shards.bytes=25 MB" in words
    _, _, rest = done.err.partition("The servers have stopped")
    serve, *lines = [line.strip() for line in rest.splitlines() if line.startswith("  ")]
    assert serve.endswith("-m tests.support.demo --serve")

    servers = reporting.start("--serve", python=DEMO)
    try:
        servers.read_until("serving until Ctrl-C")
        again = shell(reporting, "\n".join(lines))
    finally:
        servers.process.send_signal(signal.SIGTERM)
        ended = servers.wait()
    assert ended.status == 0
    assert "imagenet reused: version" in again
    assert "<larder.Data imagenet@" in again


def shell(place: Workplace, script: str) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=place.folder,
        env=place.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
