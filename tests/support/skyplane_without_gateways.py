"""Skyplane whose machines start in a local EC2, and then fail: all else is its own.

Runs in its environment, like `larder.copy.skyplane.runner`, which it calls. ``AWS_ENDPOINT_URL``
names the local EC2, of moto.
"""

import importlib.util
from pathlib import Path
from typing import Any

RUNNER = Path(__file__).parents[2] / "larder" / "copy" / "skyplane" / "runner.py"
IMAGE = "ami-12c6146b"
"""One that moto knows."""


def _without_gateways(client: Any, pipeline: Any) -> None:
    provisioner = client.provisioner
    aws, own = provisioner.aws, provisioner.host_uuid

    def start(region: str) -> None:
        aws.key_manager.ensure_key_exists(region, f"{aws.key_prefix}-{region}")
        tags = [{"Key": "skyplane", "Value": "true"}, {"Key": "skyplaneclientid", "Value": own}]
        aws.auth.get_boto3_client("ec2", region).run_instances(
            ImageId=IMAGE,
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )

    def provision(**_: object) -> None:
        for region in ("us-east-1", "eu-west-1"):
            start(region)
        raise RuntimeError("no gateway answers")

    provisioner.init_global = lambda **_: None  # makes roles, of which moto has not all
    provisioner.provision = provision


def main() -> None:
    """Do what the request on stdin asks, up to the gateways."""
    found = importlib.util.spec_from_file_location("skyplane_runner", RUNNER)
    assert found is not None
    assert found.loader is not None
    runner = importlib.util.module_from_spec(found)
    found.loader.exec_module(runner)
    runner.main(_without_gateways)


if __name__ == "__main__":
    main()
