import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from larder.config.load import load_template
from larder.config.models.cluster import Cluster
from larder.experiments.consumers.slurm import config_files
from larder.experiments.delivery import ConfigRequest, DeliveredSplit, VersionContents
from tests.support.errors import larder_error
from tests.support.golden import check_golden
from tests.support.processes import CHECKOUT
from tests.unit.experiments.made import VERSION, version_of

PATTERN = "segments/5eed/shards/train/d-train-{000000..000003}.tar"
DOWNLOADS = {"downloads": {"host_path": "/nvme/lar der", "container_path": "/cache/"}}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mount": ("bind_mount", "/mnt/data/team", {"nodes": {"count": 2}}),
    "stream": ("stream", "s3://bucket/team/", {}),
    "download": ("download", "s3://bucket/team/", {"nodes": {"count": 2, **DOWNLOADS}}),
    "download-directory": ("download", "/mnt/data/team", {"nodes": {"count": 2, **DOWNLOADS}}),
}
SCRIPT = "#!/bin/bash\n#SBATCH --nodes=1\nsrun true\n"


def emitted(
    delivery: str, url: str, options: dict[str, Any], script: str = "", *, replaces: bool = False
) -> tuple[str, tuple[str, ...]]:
    template = (
        {"script": script} if script else load_template(CHECKOUT / "configs", "slurm/default.sh")
    )
    contents = VersionContents("c0de", {"train": DeliveredSplit(50, 4, 5_000, (PATTERN,))}, 10)
    storage = {"url": url, "region": "us-west-2"} if "://" in url else {"url": "/mnt"}
    described = {"name": "s", "storage": storage, "consumer": {"kind": "slurm"}, **options}
    version, here = version_of(url, delivery, replaces=replaces), Cluster.model_validate(described)
    (file,) = config_files(ConfigRequest(template, version, contents, here, where="t.sh"))
    assert (file.name, file.in_storage) == ("job.sh", False)
    return file.text, file.replaced


@pytest.mark.parametrize("name", CASES)
def test_the_bytes_are_those_of_the_golden_file(name):
    check_golden(f"slurm/{name}.sh", emitted(*CASES[name])[0])


SRUN = f"""\
#!{sys.executable}
import json, os, sys
steps = open(os.environ["STEPS"], "a")
print(json.dumps([sys.argv[1:], dict(os.environ)]), file=steps)
sys.exit("warm" in sys.argv and "FAILS" in os.environ)
"""


def steps(text: str, folder: Path, **variables: str) -> list[tuple[list[str], dict[str, str]]]:
    srun, record = folder / "srun", folder / "steps"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    record.write_text("")
    environ = {"PATH": f"{folder}:/usr/bin:/bin", "STEPS": str(record), "SLURM_JOB_NUM_NODES": "2"}
    subprocess.run(["bash"], input=text, text=True, env={**environ, **variables}, check=False)
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_a_step_is_told_where_the_data_is(tmp_path):
    text, _ = emitted(*CASES["mount"])
    ((arguments, variables),) = steps(text, tmp_path, SLURM_CPUS_PER_TASK="8")
    root = "/mnt/data/team/larder/d"
    assert arguments == ["--cpus-per-task=8", "python3", "train.py"]
    assert variables["SLURM_EXPORT_ENV"] == "ALL"  # sbatch --export=NONE would keep them from srun
    assert {name: value for name, value in variables.items() if name.startswith("LARDER_")} == {
        "LARDER_LOCATION": f"{root}/versions/{VERSION}",
        "LARDER_SHARDS_TRAIN": f"{root}/{PATTERN}",
    }
    text, _ = emitted(*CASES["stream"], SCRIPT)
    ((_, variables),) = steps(text, tmp_path)
    assert variables["LARDER_LOCATION"] == f"s3://bucket/team/larder/d/versions/{VERSION}"
    assert (variables["AWS_DEFAULT_REGION"], "LARDER_CACHE_DIR" in variables) == (
        "us-west-2",
        False,
    )


def test_a_download_runs_once_on_each_node_and_training_only_after_it(tmp_path):
    text, _ = emitted(*CASES["download"], SCRIPT.replace("--nodes=1", "--nodes=2"))
    (warm, first), (_, second) = steps(text, tmp_path)
    location = f"s3://bucket/team/larder/d/versions/{VERSION}"
    assert warm[:3] == ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1"]
    assert warm[3:] == ["larder", "warm", location, "--to", "/nvme/lar der"]
    assert first["LARDER_CACHE_DIR"] == "/nvme/lar der/cache"
    assert second["LARDER_CACHE_DIR"] == "/cache/cache"
    assert second["LARDER_LOCATION"] == f"/cache/larder/d/versions/{VERSION}"
    assert len(steps(text, tmp_path, FAILS="1")) == 1


names = st.text(st.characters(codec="utf-8", categories=["L", "P", "S", "Zs"]), min_size=1)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=names.filter(lambda name: name.isprintable() and not set("{}\\:/.~") & set(name)))
def test_names_come_back_as_the_shell_reads_them(name, tmp_path):
    downloads = {"host_path": f"/nvme/{name}", "container_path": f"/cache/{name}"}
    nodes = {"nodes": {"downloads": downloads}}
    text, _ = emitted("download", f"s3://bucket/{name}/", nodes, SCRIPT)
    (warm, _), (_, variables) = steps(text, tmp_path)
    location = f"larder/d/versions/{VERSION}"
    assert warm[5:] == [f"s3://bucket/{name}/{location}", "--to", f"/nvme/{name}"]
    assert variables["LARDER_LOCATION"] == f"/cache/{name}/{location}"


def test_variables_stand_below_the_last_option_that_sbatch_reads():
    script = "#!/bin/sh\n\n# x\n#SBATCH -J a\n# y\n\ncd /x\n#SBATCH -N7\nsrun \\\nsrun true\n"
    lines = emitted("stream", "s3://bucket/", {}, script)[0].splitlines()
    assert lines[:5] == ["#!/bin/sh", "", "# x", "#SBATCH -J a", "#SBATCH --nodes=1"]
    assert lines[-6:] == script.splitlines()[-6:]
    text, _ = emitted("download", "s3://bucket/", {"nodes": DOWNLOADS}, script)
    assert "|| exit\n\nsrun \\\nsrun true\n" in text


@pytest.mark.parametrize(
    "line",
    ["LARDER_LOCATION=/old", 'export LARDER_SHARDS_TRAIN="/a b/$X"', "  LARDER_LIST_A='`x`'  "],
)
def test_what_names_another_version_is_shown_or_replaced(line):
    script = SCRIPT.replace("srun", f"if true; then\n{line}\nfi\nsrun")
    with larder_error("config.template", "t.sh") as caught:
        emitted("stream", "s3://bucket/", {}, script)
    assert "line 4: LARDER_" in str(caught.value)
    text, replaced = emitted("stream", "s3://bucket/", {}, script, replaces=True)
    assert replaced[0].startswith("line 4: LARDER_")
    assert text.endswith("if true; then\n:\nfi\nsrun true\n")


@pytest.mark.parametrize(
    "line",
    ["LARDER_LOCATION=/old srun x", "export \\\nLARDER_LOCATION=/old", "LARDER_LOCATION=$(x)"],
)
def test_a_line_that_does_more_is_refused_in_any_case(line):
    script = SCRIPT.replace("srun", f"{line}\nsrun")
    for replaces in (False, True):
        with larder_error("config.template", "t.sh"):
            emitted("stream", "s3://bucket/", {}, script, replaces=replaces)


@pytest.mark.parametrize(
    "line", ["# LARDER_LOCATION=x", 'echo "$LARDER_LOCATION" ${LARDER_LOCATION=x}', "LARDER_X=1"]
)
def test_other_lines_are_kept(line):
    assert f"\n{line}\n" in emitted("stream", "s3://bucket/", {}, f"{SCRIPT}{line}\n")[0]


@pytest.mark.parametrize(
    ("code", "script", "delivery", "nodes"),
    [
        ("config.template", "srun true\n", "stream", {}),
        ("config.template", "#!/bin/csh\nsrun true\n", "stream", {}),
        ("config.template", "#!/usr/bin/env python3\n", "stream", {}),
        ("config.template", SCRIPT.replace("\n", "\r\n"), "stream", {}),
        ("config.template", "#!/bin/sh\n  srun true\n", "download", DOWNLOADS),
        ("config.invalid_value", SCRIPT, "download", {}),
        ("config.invalid_experiment", SCRIPT, "stream", {"count": 2}),
        ("config.invalid_experiment", SCRIPT.replace("--nodes=1", "-N 2-4"), "stream", {}),
        ("config.invalid_experiment", SCRIPT.replace("--nodes=1", "-A x -N3"), "stream", {}),
    ],
)
def test_mistakes_are_named(code, script, delivery, nodes):
    with larder_error(code):
        emitted(delivery, "s3://bucket/", {"nodes": nodes}, script)


def test_a_template_that_is_no_script_is_refused():
    here = Cluster.model_validate({"name": "s", "storage": {"url": "/mnt"}})
    with larder_error("config.template"):
        config_files(
            ConfigRequest(
                {"entrypoint": "x"},
                version_of("/mnt", "stream"),
                VersionContents("", {}),
                here,
                where="t.yaml",
            )
        )
