"""Imports of starts: each start, and each process of a crew, pays for every module."""

import pytest

from tests.support.processes import run_python

NOT_NEEDED = {
    "larder.copy.copying": "ruamel pycurl larder.config.models.dataset "
    "larder.copy.skyplane.adapter",
    "larder.catalog.history": "numpy pyarrow pycurl larder.pipeline",
    "larder.catalog.show": "numpy pyarrow pycurl larder.pipeline",
    "larder.pipeline.configs": "pyarrow pathspec pycurl",
    "larder.verify.verifying": "pathspec PIL larder.copy.copy_plan larder.verify.repair",
    "larder.card.draw": "pyarrow larder.pipeline.preparing",
    "larder.pipeline.preparing": "duckdb lmdb larder.copy.copy_job larder.growth "
    "larder.experiments.consumers.kubernetes larder.experiments.consumers.sagemaker "
    "larder.pipeline.planned_build larder.samples.sample_order larder.source.expand "
    "larder.source.reports",
    "larder.copy.copy_job": "duckdb pyarrow.compute ruamel larder.copy.copy_end larder.source",
    "tasks.blocks": "prefect pycurl pyarrow",
    "larder.segments.shard": "duckdb lmdb ruamel larder.copy.copy_job larder.samples.sample_order",
}
"""Modules of commands, of a run with nothing to do, and of processes that copy and pack."""


@pytest.mark.push
@pytest.mark.parametrize("module", NOT_NEEDED)
def test_a_start_imports_no_module_that_only_other_work_needs(module):
    done = run_python("-c", f"import sys, {module}; print(*sys.modules)")
    loaded = done.stdout.split()
    assert module in loaded, done.stderr
    assert not set(loaded).intersection(NOT_NEEDED[module].split())


@pytest.mark.push
def test_importing_the_models_builds_no_validator():
    script = """
from larder.config.models import cluster, dataset
from larder.copy import copy_settings
from larder.config.models.field_types import Model
print([model.__name__ for model in Model.__subclasses__() if model.__pydantic_complete__])
"""
    assert run_python("-c", script).stdout == "[]\n"


COPIED = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
sys.argv[1:] = ["copy", *sys.argv[1:], "--quiet", "--set", "source.exclude=*.tmp"]
from larder.cli.main import main
sys.exit(main())
"""


@pytest.mark.push
def test_a_copy_of_few_files_imports_no_module_that_it_can_do_without(tmp_path):
    source, storage = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    for name in ("a", "b.tmp"):
        (source / name).write_bytes(b"1")
    loaded = set(run_python("-c", COPIED, source, storage).stderr.split())
    assert (storage / "a").exists()
    assert not (storage / "b.tmp").exists()
    needless = {"botocore", "duckdb", "numpy.ma", "pickletools", "pycurl", "rich", "ruamel"}
    assert "pyarrow" in loaded
    assert not loaded & needless
