"""The ImageNet demo: two local S3 servers as two regions, and the real command between them.

``python -m larder.testing.demo`` fills a bucket of one server with an ImageNet-like dataset of
generated JPEGs in the official layout, and prepares it into a bucket of the other.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from larder.store import open_store
from larder.testing.datasets import write_imagenet
from larder.testing.servers import S3Server, rclone_s3
from larder.units import format_bytes, format_seconds

__all__ = ["demo_environment", "main"]


def demo_environment(source: S3Server, local: S3Server) -> dict[str, str]:
    """The variables of `imagenet` and `aws-us-west-2` for two servers with the same credentials."""
    return {
        "IMAGENET_SOURCE": "s3://us-east-1-bucket/imagenet",
        "IMAGENET_SOURCE_ENDPOINT": source.endpoint,
        "LARDER_LOCAL": "s3://us-west-2-bucket/data",
        "LARDER_LOCAL_ENDPOINT": local.endpoint,
        "AWS_ACCESS_KEY_ID": local.access_key,
        "AWS_SECRET_ACCESS_KEY": local.secret_key,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; further arguments go to ``python -m flows.prepare``."""
    parser = argparse.ArgumentParser(prog="python -m larder.testing.demo", description=__doc__)
    parser.add_argument("--count", type=int, default=3000, help="JPEGs to generate")
    known, further = parser.parse_known_args(arguments)
    with rclone_s3() as source, rclone_s3() as local:
        variables = demo_environment(source, local)
        os.environ.update(variables)
        source.create_bucket("us-east-1-bucket")
        local.create_bucket("us-west-2-bucket")
        _say(f"two S3 servers: us-east-1 at {source.endpoint}, us-west-2 at {local.endpoint}")
        _fill(source, variables["IMAGENET_SOURCE"], known.count)
        command = ["--dataset", "imagenet", "--cluster", "aws-us-west-2"]
        command += ["--set", "shards.bytes=25 MB", "--set", "cluster.runner.batch_bytes=50 MB"]
        status = _prepare([*command, *further])
        if status == 0:
            _say("the same again: nothing changed")
            status = _prepare(command)
    return status


def _prepare(arguments: Sequence[str]) -> int:
    _say("$ python -m flows.prepare " + " ".join(arguments))
    command = [sys.executable, "-m", "flows.prepare", *arguments]
    return subprocess.run(command, check=False).returncode  # noqa: S603 - our own command


def _fill(server: S3Server, url: str, count: int) -> None:
    started = time.monotonic()
    store = open_store(url, endpoint=server.endpoint, region=server.region)
    try:
        objects, size_bytes = write_imagenet(store, count)
    finally:
        store.close()
    seconds = format_seconds(time.monotonic() - started)
    _say(f"wrote {objects:,} objects, {format_bytes(size_bytes)}, to {url} in {seconds}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - a command


if __name__ == "__main__":
    sys.exit(main())
