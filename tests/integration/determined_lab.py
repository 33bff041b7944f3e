"""Trials of Determined on this machine, with what Larder emits for them."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pipeline_lab import Lab
from ruamel.yaml import YAML

from tests.support.processes import CHECKOUT

READ = """
import json, larder
data = larder.open()
found = {
    split: [[key, label, {ext: part.hex() for ext, part in parts.items()}]
            for key, label, parts in data.samples(split)]
    for split in data.splits
}
print(json.dumps({"version": data.version, "found": found}))
"""
ENTRYPOINT = 'set -e -x\n[ -f startup-hook.sh ] && source startup-hook.sh\nset +x\npython3 -c "$1"'
"""What Determined's does, as far as it matters here."""


class Trials:
    """Runs of training code, each in a new container: a new work directory."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        bin_ = folder / "bin"
        bin_.mkdir(parents=True)
        (bin_ / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (bin_ / "python3").chmod(0o755)
        path = f"{bin_}:{os.environ['PATH']}"
        own = {"PATH": path, "PYTHONPATH": str(CHECKOUT), "HOME": str(folder)}
        self.environment = {**environment, **own}

    def run(self, output: Path, code: str = READ) -> tuple[int, str, str]:
        """Submit what was emitted, as ``det experiment create OUT/experiment.yaml OUT``."""
        work = Path(tempfile.mkdtemp(dir=self.folder))
        shutil.copytree(output, work, dirs_exist_ok=True)
        config = YAML(typ="safe").load(work / "experiment.yaml")
        variables = config.get("environment", {}).get("environment_variables", [])
        done = subprocess.run(
            ["bash", "-c", ENTRYPOINT, "entrypoint", code],
            cwd=work,
            env={
                **self.environment,
                "DET_EXPERIMENT_CONFIG": json.dumps(config),
                **dict(each.split("=", 1) for each in variables),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def read(self, lab: Lab) -> dict[str, Any]:
        """The config of a trial that has read what was published."""
        status, out, err = self.run(lab.output)
        assert status == 0, err
        read = json.loads(out.splitlines()[-1])
        published = lab.newest()
        assert read["version"] == published.version.id
        assert read["found"] == {
            split: [[s.key, s.label, {e: p.hex() for e, p in s.parts.items()}] for s in samples]
            for split, samples in published.samples.items()
        }
        return document(lab)


def document(lab: Lab) -> dict[str, Any]:
    config: dict[str, Any] = YAML(typ="safe").load(lab.output / "experiment.yaml")
    return config


def delivered(lab: Lab, delivery: str, **cluster: Any) -> dict[str, Any]:
    return lab.prepare(experiment={"delivery": delivery}, cluster=cluster)


def downloads(tmp_path: Path) -> dict[str, Any]:
    """As on a node, where host and container see it under the same path."""
    path = str(tmp_path / 'node/it\'s `id`; & "here"')
    return {"downloads": {"host_path": path, "container_path": path}}


def variables(lab: Lab) -> dict[str, str]:
    entries = document(lab)["environment"]["environment_variables"]
    return dict(entry.split("=", 1) for entry in entries)
