"""Skyplane with two gateways on this machine instead of machines in the cloud, for tests.

Runs in Skyplane's own environment, like `larder.copy.skyplane.runner`, which it calls:
client, planner, dispatch and gateways are Skyplane's own. Only what would start and end machines is
replaced. For every machine, it also starts an instance of the local EC2 (moto's, which
``AWS_ENDPOINT_URL`` names), with Skyplane's tags and a key pair, so that there is something to end.

``LARDER_SKYPLANE_LOCAL`` names a folder. Each gateway writes its process ID there, into the file
``sink.pid`` or ``source.pid``. The addresses are on the loopback interface: all of 127.0.0.0/8 are,
on Linux.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

RUNNER = Path(__file__).parents[2] / "larder" / "copy" / "skyplane" / "runner.py"
GATEWAY = Path(__file__).with_name("skyplane_gateway.py")
START_SECONDS = 120.0
IMAGE = "ami-12c6146b"
"""One that moto knows."""


class LocalServer:
    """A gateway on a loopback address; has what Skyplane's client calls of a server.

    ``role`` is ``source`` or ``sink``, ``instance`` the ID of its instance in the local EC2.
    """

    def __init__(
        self, region_tag: str, role: str, address: str, folder: Path, instance: str
    ) -> None:
        self.region_tag = region_tag
        self.role = role
        self.address = address
        self.folder = folder
        self.instance = instance
        self.gateway_api_url = f"http://{address}:8081"
        self.provider = region_tag.partition(":")[0]
        self._process: subprocess.Popen[bytes] | None = None

    def public_ip(self) -> str:
        return self.address

    private_ip = public_ip

    def uuid(self) -> str:
        """Names it in Skyplane's logs."""
        return f"{self.region_tag}:{self.instance}"

    instance_name = uuid

    def init_log_files(self, log_dir: str) -> None:
        """It has a log of its own."""

    def run_command(self, command: str) -> tuple[str, str]:
        """Skyplane sends commands without effect, to show that it is still there."""
        assert command == "echo 1", command
        return "1\n", ""

    def start_gateway(
        self,
        gateway_docker_image: str,
        gateway_program_path: str,
        gateway_info_path: str,
        e2ee_key_bytes: bytes,
        use_bbr: bool,
        use_compression: bool,
        use_socket_tls: bool,
    ) -> None:
        """Start the real gateway as a process, as the image would, and wait until it answers."""
        del gateway_docker_image, use_bbr, use_compression, use_socket_tls
        (self.folder / "key").write_bytes(e2ee_key_bytes)
        environment = {
            **os.environ,
            "SKYPLANE_IS_GATEWAY": "1",
            "GATEWAY_PROGRAM_FILE": gateway_program_path,
            "GATEWAY_INFO_FILE": gateway_info_path,
            "E2EE_KEY_FILE": str(self.folder / "key"),
            "AWS_DEFAULT_REGION": self.region_tag.partition(":")[2],
        }
        command = [sys.executable, "-I", str(GATEWAY), self.region_tag, self.address]
        with open(self.folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                [*command, str(self.folder)],
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        pid_file = Path(os.environ["LARDER_SKYPLANE_LOCAL"]) / f"{self.role}.pid"
        pid_file.write_text(str(self._process.pid))
        self._wait_until_it_answers()

    def stop(self) -> None:
        import psutil

        if self._process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            gateway = psutil.Process(self._process.pid)
            for process in [gateway, *gateway.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._process.wait()

    def _wait_until_it_answers(self) -> None:
        import urllib3

        assert self._process is not None
        pool = urllib3.PoolManager(retries=False)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(urllib3.exceptions.HTTPError, ValueError):
                status = pool.request("GET", f"{self.gateway_api_url}/api/v1/status")
                if json.loads(status.data).get("status") == "ok":
                    return
            time.sleep(0.05)
        raise TimeoutError(f"the gateway at {self.address} did not start")


class LocalProvisioner:
    """Replaces Skyplane's ``real`` provisioner, except for all that has to do with credentials."""

    def __init__(self, real: Any) -> None:
        self.aws = real.aws
        self.gcp = real.gcp
        self._client_id = real.host_uuid
        self._tasks: list[tuple[str, str]] = []
        self._servers: dict[str, LocalServer] = {}
        # Addresses of their own, so that several tests can run at once.
        self._network = f"127.{os.getpid() % 250 + 2}.{os.getpid() // 250 % 250 + 2}"

    def add_task(self, cloud_provider: str, region: str, **_: object) -> str:
        self._tasks.append((uuid.uuid4().hex, f"{cloud_provider}:{region}"))
        return self._tasks[-1][0]

    def init_global(self, **_: bool) -> None:
        """Nothing to do."""

    def provision(self, **_: object) -> list[str]:
        for number, (task, tag) in enumerate(self._tasks):
            folder = Path.home() / f"gateway-{number}"
            folder.mkdir()
            role = "sink" if number else "source"
            address = f"{self._network}.{number + 2}"
            instance = self._instance(tag.partition(":")[2])
            self._servers[task] = LocalServer(tag, role, address, folder, instance)
        return [task for task, _ in self._tasks]

    def get_node(self, task: str) -> LocalServer:
        return self._servers[task]

    def deprovision(self, **_: object) -> None:
        for server in self._servers.values():
            server.stop()
            region = server.region_tag.partition(":")[2]
            ec2 = self.aws.auth.get_boto3_client("ec2", region)
            ec2.terminate_instances(InstanceIds=[server.instance])

    def _instance(self, region: str) -> str:
        # As Skyplane does when it sets up a region.
        self.aws.key_manager.ensure_key_exists(region, f"{self.aws.key_prefix}-{region}")
        ec2 = self.aws.auth.get_boto3_client("ec2", region)
        tags = {"skyplane": "true", "skyplaneclientid": self._client_id}
        made = ec2.run_instances(
            ImageId=IMAGE,
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
                }
            ],
        )
        return str(made["Instances"][0]["InstanceId"])


def _on_this_machine(client: Any, pipeline: Any) -> None:
    """Use gateways here, with one connection (Skyplane's 64 are a busy process each).

    Objects above 8 MiB are uploaded in parts, not only those above 128 MiB.
    """
    client.provisioner = pipeline.provisioner = LocalProvisioner(client.provisioner)
    pipeline.planner.n_connections = 1
    pipeline.transfer_config = dataclasses.replace(
        pipeline.transfer_config, multipart_threshold_mb=8, multipart_chunk_size_mb=5
    )


def main() -> None:
    """Do what the request on stdin asks, on this machine."""
    found = importlib.util.spec_from_file_location("skyplane_runner", RUNNER)
    assert found is not None
    assert found.loader is not None
    runner = importlib.util.module_from_spec(found)
    found.loader.exec_module(runner)
    runner.main(_on_this_machine)


if __name__ == "__main__":
    main()
