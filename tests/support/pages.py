"""Run the commands of the pages in a clone where ``make demo`` has run, beside a server of S3.

``python -m tests.support.pages CLONE``, with the packages of the tests. README.md has `readme`.
A block without one of the languages in `_OTHERS` is commands: a page marks what is not as ``text``.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from larder.store import open_store
from tests.support.imagenet import write_imagenet
from tests.support.servers import S3Server, rclone_s3

_FENCE = re.compile(r"^ *```([^\n]*)\n(.*?)^ *```$", re.M | re.S)
_OTHERS = ("json", "python", "text", "yaml")
_PAGES = ("docs/tutorial.md", "docs/how-to/*.md", "docs/reference/*.md", "deployments/**/*.md")

_ELSEWHERE = {
    "docs/reference/cli.md": "synopses: tests/unit/test_docs_reference.py",
    "aws ": "needs an account of AWS",
    "gcloud ": "needs an account of Google Cloud",
    "docker ": "needs Docker",
    "det ": "needs a master of Determined",
    "kubectl ": "needs a cluster of Kubernetes",
    "sbatch ": "tests/integration/test_slurm_jobs.py",
    "make skyplane": "set up by another part of .ci/run, with its gateways",
    "make dask": "set up by another part of .ci/run",
    "make serve": "tests/e2e/test_serve.py",
    "make deploy": "tests/e2e/test_deploying.py",
    ".venv/bin/prefect work": "needs a Prefect server",
    "prefect global-concurrency-limit": "needs a Prefect server",
    "ID=$(curl": "needs a Prefect server",
    "curl ": "needs a Prefect server",
    "export PREFECT_API_URL": "needs a Prefect server",
    "echo LARDER_DATABASE_PASSWORD": "needs Docker",
    "git pull": "changes the clone",
    ".venv/bin/python -m pip": "installs packages again",
    "pg_dump ": "tests/e2e/test_image.py",
    "pg_restore ": "tests/e2e/test_image.py",
    "createdb ": "tests/e2e/test_image.py",
    "dropdb ": "tests/e2e/test_image.py",
    "groupadd ": "needs root",
    "chgrp ": "needs root",
}
"""Pages, and how commands begin, that do not run here; and why."""

_BUCKETS = (
    "their-bucket",
    "our-bucket",
    "us-west-2-bucket",
    "my-bucket",
    "my-bucket-in-us-west-2",
    "team",
)
_CACHED_FUNCTION = """
import larder
@larder.cache_train_dataset("range_dataset", "v1", shuffle=True, storage="s3://team/caches")
def numbers():
    yield from range(10)
numbers()
"""


def main(clone: Path) -> None:
    """Run the commands of each page in their order; the first that fails ends it."""
    with rclone_s3() as server:
        world = _World(clone, server)
        for page in sorted(path for pattern in _PAGES for path in clone.glob(pattern)):
            name = str(page.relative_to(clone))
            if name not in _ELSEWHERE:
                for block in _blocks(page.read_text()):
                    world.run(name, block)


def _blocks(text: str) -> Iterator[list[str]]:
    """The commands of each block of a page that run here."""
    for language, block in _FENCE.findall(text):
        lines = [line.strip() for line in block.replace("\\\n", " ").splitlines()]
        if block.lstrip().startswith("$ "):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        here = [line for line in lines if not line.startswith(tuple(_ELSEWHERE))]
        if here and language not in _OTHERS:
            yield here


class _World:
    """What the pages take as given: buckets, ImageNet, and two versions of the pets."""

    def __init__(self, clone: Path, server: S3Server) -> None:
        self._clone = clone
        self._environment = {
            **os.environ,
            **server.environment,
            "PATH": f"{clone / '.venv/bin'}:{os.environ['PATH']}",
            "AWS_CONFIG_FILE": str(clone / "aws-config"),
            "IMAGENET_SOURCE": "s3://their-bucket/imagenet",
            "LARDER_STORAGE": "s3://us-west-2-bucket/",
        }
        (clone / "aws-config").write_text(
            "[profile backup]\nregion = eu-central-1\n"
            f"aws_access_key_id = {server.access_key}\n"
            f"aws_secret_access_key = {server.secret_key}\n"
        )
        for bucket in _BUCKETS:
            server.create_bucket(bucket)
        os.environ.update(server.environment)
        write_imagenet(open_store("s3://their-bucket/imagenet"), 12, 2)
        open_store("s3://their-bucket/data").put("a.txt", b"a")
        for folder in ("photos", "pets/cats", "pets/dogs"):
            for number in range(10, 40):
                path = clone / folder / f"{number:04}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
        tutorial = (clone / "docs/tutorial.md").read_text()
        pets = re.search(r"^```yaml\n(.*?name: pets\n.*?)^```", tutorial, re.M | re.S)
        assert pets
        dataset = pets[1].replace("/data/pets", str(clone / "pets"))
        (clone / "configs/datasets/pets.yaml").write_text(dataset)
        prepare = "larder prepare --dataset pets"
        self.run("set-up", [f"{prepare} && rm pets/cats/0011.jpg && {prepare}"])
        self.run("set-up", [f"{prepare} --cluster aws-us-west-2"])
        self.run("set-up", ["larder lease pets latest --for 'somebody else'"])
        self.run("set-up", ["larder copy pets s3://my-bucket/pets"])
        self.run("set-up", ["larder copy s3://their-bucket/imagenet s3://our-bucket/imagenet"])
        self.run("set-up", [f"python -c '{_CACHED_FUNCTION}'"])
        caches = open_store("s3://team/caches")
        for page in caches.list("range_dataset/v1_train/leases/"):  # training has ended
            for lease in page:
                caches.delete(lease.key)

    def run(self, page: str, commands: list[str]) -> None:
        """Run commands in one shell, with the IDs and the lease that are there."""
        script, started = "\n".join(commands), time.monotonic()
        for text, value in self._names().items():
            script = script.replace(text, value)
        done = subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", script],
            cwd=self._clone,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{time.monotonic() - started:.0f} s: {page}: {commands[0]}", flush=True)
        if done.returncode != 0:
            sys.exit(f"{page}: status {done.returncode}\n{done.stdout}{done.stderr}")

    def _names(self) -> dict[str, str]:
        """What stands for the names on the pages."""
        root = self._clone / "data/local/larder"
        pets, digits = (
            [
                path.parent.name
                for path in sorted(root.glob(f"{name}/versions/*/version.json"), key=_age)
            ]
            for name in ("pets", "digits")
        )
        leases = [path.stem for path in root.glob("pets/leases/user-*.json")]
        names = {"/tmp/": f"{self._clone}/"}
        if leases:
            names["user-1c0ffee012345678"] = leases[0]
        if len(pets) > 1:
            names |= {"@c1dd": f"@{pets[-1]}", " c1dd": f" {pets[-1]}", " 3fa9": f" {pets[0]}"}
            names |= {"@833a": f"@{pets[0]}", "0123456789abcdef" * 2: digits[-1]}
        return names


def _age(path: Path) -> float:
    return path.stat().st_mtime


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
