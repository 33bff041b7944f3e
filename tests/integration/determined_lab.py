"""Trials of Determined on this machine, with what Larder emits for them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipeline_lab import Lab
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
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
        folder.mkdir()
        bin_ = folder / "bin"
        bin_.mkdir()
        (bin_ / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (bin_ / "python3").chmod(0o755)
        self.environment = {
            **environment,
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
        }
        self.started = 0

    def start(self, output: Path, code: str = READ, **environment: str) -> subprocess.Popen[str]:
        """Submit what was emitted, as ``det experiment create OUT/experiment.yaml OUT``."""
        self.started += 1
        work = self.folder / f"work-{self.started}"
        shutil.copytree(output, work)
        config = YAML(typ="safe").load(work / "experiment.yaml")
        variables = config.get("environment", {}).get("environment_variables", [])
        return subprocess.Popen(
            ["bash", "-c", ENTRYPOINT, "entrypoint", code],
            cwd=work,
            env={
                **self.environment,
                "DET_EXPERIMENT_CONFIG": json.dumps(config),
                **dict(each.split("=", 1) for each in variables),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, output: Path, code: str = READ, **environment: str) -> tuple[int, str, str]:
        process = self.start(output, code, **environment)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def read(self, lab: Lab) -> dict[str, Any]:
        """The samples by split, as training reads them; checked against what was published."""
        status, out, err = self.run(lab.output)
        assert status == 0, err
        checked(lab, out)
        return document(lab)


def checked(lab: Lab, out: str) -> None:
    read = json.loads(out.splitlines()[-1])
    published = lab.newest()
    assert read["version"] == published.version.id
    assert read["found"] == {
        split: [[s.key, s.label, {e: p.hex() for e, p in s.parts.items()}] for s in samples]
        for split, samples in published.samples.items()
    }


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
