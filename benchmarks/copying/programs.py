"""What copies: Larder and its peers, each as the command that its users type."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import CPU, LARDER, PEAK, SECONDS, Measured, run_command, say
from tests.support.servers import S3Server

OURS = "ours"
PEERS = ("rclone", "s5cmd", "aws", "boto3")

_BOTO3 = """\
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import boto3
from botocore.config import Config
def client(endpoint):
    return boto3.client("s3", endpoint_url=endpoint, config=Config(
        max_pool_connections=32, s3={"addressing_style": "path"},
        request_checksum_calculation="when_required", response_checksum_validation="when_required"))
from_, to = sys.argv[1:3]
ends = [tuple(end.split(" ", 1)) if " " in end else ("", end) for end in (from_, to)]
(se, sp), (te, tp) = ends
s, t = (client(e) if e else None for e in (se, te))
if s:
    pages = s.get_paginator("list_objects_v2").paginate(Bucket=sp)
    keys = [o["Key"] for page in pages for o in page.get("Contents", ())]
else:
    keys = [str(p.relative_to(sp)) for p in Path(sp).rglob("*") if p.is_file()]
def one(key):
    if se and se == te:
        t.copy({"Bucket": sp, "Key": key}, tp, key)
    elif s and t:
        t.upload_fileobj(s.get_object(Bucket=sp, Key=key)["Body"], tp, key)
    elif s:
        path = Path(tp, key); path.parent.mkdir(parents=True, exist_ok=True)
        s.download_file(sp, key, str(path))
    else:
        t.upload_file(str(Path(sp, key)), tp, key)
with ThreadPoolExecutor(32) as pool:
    list(pool.map(one, keys))
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where objects are copied from or to: a bucket of a server, or a directory without one.

    ``folder`` has the objects as files, to check their contents.
    """

    path: str
    server: S3Server | None
    folder: Path

    @property
    def url(self) -> str:
        """``s3://BUCKET`` or the directory."""
        return f"s3://{self.path}" if self.server else self.path


def copy_with(name: str, programs: Path | None, source: Place, target: Place) -> Measured | None:
    """Copy with ``ours`` or one of `PEERS` to an empty place.

    None if the program is not in ``programs``, or on the PATH without these, or if it fails: some
    cannot copy between these two.
    """
    if name == OURS:
        return _run([_ours(source, target)], source, target)
    program = _program(name, programs)
    if program is None:
        return None
    makers = {"s5cmd": _s5cmd, "rclone": _rclone, "aws": _aws, "boto3": _boto3}
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="larder-between-") as between:
        return _run_peer(makers[name](program, source, target, between), source, target)


def list_with(name: str, programs: Path | None, source: Place) -> Measured | None:
    """List all keys of a bucket with one program; None as for `copy_with`."""
    assert source.server is not None, "a bucket"
    endpoint = source.server.endpoint
    if name == OURS:
        script = (
            "import sys; from larder.store import open_store\n"
            "print(sum(map(len, open_store(sys.argv[1], endpoint=sys.argv[2]).list())))"
        )
        return _run([[sys.executable, "-c", script, source.url, endpoint]], source, source)
    program = _program(name, programs)
    if program is None or name not in ("s5cmd", "rclone"):
        return None
    command = [program, "--endpoint-url", endpoint, "ls", f"{source.url}/*"]
    if name == "rclone":
        command = [program, "--config", "/nonexistent", "lsf", "-R", "--format", "pst"]
        command.append(f"{_remote(source.server)}{source.path}")
    return _run_peer([command], source, source)


def _program(name: str, programs: Path | None) -> str | None:
    program = "python" if name == "boto3" else name
    return shutil.which(program, path=str(programs) if programs else None)


def _ours(source: Place, target: Place) -> list[str]:
    command = [*LARDER, "copy", source.url, target.url, "--quiet"]
    for side, place in (("source", source), ("storage", target)):
        if place.server:
            command += ["--set", f"{side}.endpoint={place.server.endpoint}"]
    return command


def _s5cmd(program: str, source: Place, target: Place, between: str) -> list[list[str]]:
    """One endpoint per command: between two servers, through memory."""

    def copy(server: S3Server, from_: str, to: str) -> list[str]:
        return [program, "--endpoint-url", server.endpoint, "cp", from_, to]

    from_ = f"{source.url}/*" if source.server else f"{source.path}/"
    to = f"{target.url}/"
    if source.server and target.server and source.server != target.server:
        return [copy(source.server, from_, f"{between}/"), copy(target.server, f"{between}/", to)]
    server = source.server or target.server
    assert server is not None, "a bucket at one end"
    return [copy(server, from_, to)]


def _remote(server: S3Server) -> str:
    return (
        f":s3,provider=Other,access_key_id={server.access_key},"
        f"secret_access_key={server.secret_key},endpoint='{server.endpoint}':"
    )


def _rclone(program: str, source: Place, target: Place, between: str) -> list[list[str]]:
    del between
    command = [program, "copy", "--config", "/nonexistent", "--transfers", "32", "--checkers", "32"]
    # It reads no AWS_CA_BUNDLE, and would retry for minutes.
    for certificate in {end.server.certificate for end in (source, target) if end.server} - {""}:
        command += ["--ca-cert", certificate]
    ends = [(_remote(end.server) if end.server else "") + end.path for end in (source, target)]
    return [[*command, *ends]]


def _aws(program: str, source: Place, target: Place, between: str) -> list[list[str]]:
    """One endpoint per command, too."""

    def sync(server: S3Server, from_: str, to: str) -> list[str]:
        return [program, "s3", "sync", "--quiet", "--endpoint-url", server.endpoint, from_, to]

    if source.server and target.server and source.server != target.server:
        return [sync(source.server, source.url, between), sync(target.server, between, target.url)]
    server = source.server or target.server
    assert server is not None, "a bucket at one end"
    return [sync(server, source.url, target.url)]


def _boto3(program: str, source: Place, target: Place, between: str) -> list[list[str]]:
    del between
    ends = [
        f"{end.server.endpoint} {end.path}" if end.server else end.path for end in (source, target)
    ]
    return [[program, "-c", _BOTO3, *ends]]


def _run_peer(commands: Sequence[Sequence[str]], source: Place, target: Place) -> Measured | None:
    try:
        return _run(commands, source, target)
    except RuntimeError as error:
        say(f"    {error}")
        return None


def _run(commands: Sequence[Sequence[str]], source: Place, target: Place) -> Measured:
    """Run commands one after the other."""
    environment = {**os.environ, **_environment(source, target)}
    measured = [run_command(command, env=environment) for command in commands]
    added = {what: sum(each[what] for each in measured) for what in (SECONDS, CPU)}
    return {**added, PEAK: max(each[PEAK] for each in measured)}


def _environment(source: Place, target: Place) -> Mapping[str, str]:
    server = source.server or target.server
    assert server is not None, "a bucket at one end"
    found = dict(server.environment)
    found.pop("AWS_ENDPOINT_URL")
    found["PYTHONDONTWRITEBYTECODE"] = ""  # as on users' machines
    return found
