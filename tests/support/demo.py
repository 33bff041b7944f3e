"""The ImageNet demo: two local S3 servers as two regions, and the real command between them.

``python -m tests.support.demo`` fills a bucket of one server with an ImageNet-like dataset of
generated JPEGs in the official layout, and prepares it into a bucket of the other. The buckets
remain in data/demo-imagenet; with ``--serve`` it only starts the servers again.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from larder.errors import LarderError
from larder.store import open_store
from larder.units import format_bytes, format_seconds
from tests.support.imagenet import write_imagenet
from tests.support.servers import S3Server, rclone_s3

_FOLDER = Path("data/demo-imagenet")
_PORTS = (28411, 28412)
"""Preferred ports of the first demo; later ones prefer the ports of the previous demo."""
_OUTPUT = Path("out/aws-us-west-2/imagenet")
_SOURCE = "s3://us-east-1-bucket/imagenet"
_STORAGE = "s3://us-west-2-bucket/data"
_COMMAND = ("--dataset", "imagenet", "--cluster", "aws-us-west-2")
_SMALL = ("--set", "shards.bytes=25 MB", "--set", "cluster.runner.batch_bytes=50 MB")


def demo_environment(source: S3Server, storage: S3Server) -> dict[str, str]:
    """The variables of `imagenet` and `aws-us-west-2` for two servers with the same credentials."""
    return {
        "IMAGENET_SOURCE": _SOURCE,
        "IMAGENET_SOURCE_ENDPOINT": source.endpoint,
        "LARDER_STORAGE": _STORAGE,
        "LARDER_STORAGE_ENDPOINT": storage.endpoint,
        "AWS_ACCESS_KEY_ID": storage.access_key,
        "AWS_SECRET_ACCESS_KEY": storage.secret_key,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; further arguments go to ``python -m flows.prepare``."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.demo", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=3000, help="JPEGs to generate")
    parser.add_argument("--serve", action="store_true", help="start the servers, until Ctrl-C")
    known, further = parser.parse_known_args(arguments)
    try:
        with _servers() as (source, storage):
            _say(f"two S3 servers: us-east-1 at {source.endpoint}, us-west-2 at {storage.endpoint}")
            variables = demo_environment(source, storage)
            if known.serve:
                return _serve(variables)
            os.environ.update(variables)
            _fill(source, known.count)
            status = _run([*_COMMAND, *_SMALL, *further])
    except LarderError as error:
        _say(f"error[{error.code}]: {error}")
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    if status == 0:
        _show(variables, further)
    return status


@contextmanager
def _servers() -> Iterator[tuple[S3Server, S3Server]]:
    """Two servers, each with its bucket; if possible, on the ports of the previous demo."""
    east, west = (_FOLDER / name for name in ("us-east-1", "us-west-2"))
    ports = _last_ports()
    with rclone_s3(east, ports[0]) as source, rclone_s3(west, ports[1]) as storage:
        (_FOLDER / "ports").write_text(f"{source.port} {storage.port}\n")
        source.create_bucket("us-east-1-bucket")
        storage.create_bucket("us-west-2-bucket")
        yield source, storage


def _last_ports() -> tuple[int, int]:
    try:
        east, west = map(int, (_FOLDER / "ports").read_text().split())
    except (OSError, ValueError):  # missing or invalid
        return _PORTS
    return east, west


def _fill(server: S3Server, count: int) -> None:
    """Write the dataset, unless an earlier demo of the same size did."""
    mark = _FOLDER / "filled"
    if mark.exists() and mark.read_text() == str(count):
        _say(f"using the dataset of an earlier demo in {_SOURCE}")
        return
    mark.unlink(missing_ok=True)
    shutil.rmtree(_FOLDER / "us-east-1/us-east-1-bucket/imagenet", ignore_errors=True)
    started = time.monotonic()
    store = open_store(_SOURCE, endpoint=server.endpoint, region=server.region)
    objects, size_bytes = write_imagenet(store, count)
    mark.write_text(str(count))
    seconds = format_seconds(time.monotonic() - started)
    _say(f"wrote {objects:,} objects, {format_bytes(size_bytes)}, to {_SOURCE} in {seconds}")


def _run(arguments: list[str]) -> int:
    status = _prepare(arguments)
    if status == 0:
        _say("the same command again: nothing changed")
        status = _prepare(arguments)
    return status


def _prepare(arguments: list[str]) -> int:
    _say(f"$ {shlex.join(['python', '-m', 'flows.prepare', *arguments])}")
    command = [sys.executable, "-m", "flows.prepare", *arguments]
    return subprocess.run(command, check=False).returncode


def _show(variables: Mapping[str, str], further: Sequence[str]) -> None:
    """Show the config, and what to type to continue."""
    config = _OUTPUT / "experiment.yaml"
    if config.exists():
        _say(f"\nthe config, {config}:\n")
        sys.stdout.write(config.read_text())
        sys.stdout.flush()
    _say(f"\nThe servers have stopped; their buckets remain in {_FOLDER}. To start them again:\n")
    _say(f"  {_python('-m', 'tests.support.demo', '--serve')}")
    _say("\nand to continue, in another terminal:\n")
    _say_exports(variables)
    _say(f"  {_python('-m', 'flows.prepare', *_COMMAND, *_SMALL, *further)}")
    url = f"{_STORAGE}/larder/imagenet@latest"
    endpoint = variables["LARDER_STORAGE_ENDPOINT"]
    program = f'import larder; print(larder.open("{url}", endpoint="{endpoint}"))'
    _say(f"  {_python('-c', program)}")


def _serve(variables: Mapping[str, str]) -> int:
    """Print where the servers are, and wait for Ctrl-C or SIGTERM."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    _say_exports(variables)
    _say("serving until Ctrl-C")
    ended.wait()
    return 0


def _say_exports(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        _say(f"  export {name}={shlex.quote(value)}")


def _python(*arguments: str) -> str:
    """A command line for a shell in this directory."""
    program = Path(sys.executable)
    here = Path.cwd()
    shown = program.relative_to(here) if program.is_relative_to(here) else program
    return shlex.join([str(shown), *arguments])


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
