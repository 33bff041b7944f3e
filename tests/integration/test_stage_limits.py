"""Stages that take longer than the cluster file allows, and the run after them."""

from itertools import count
from typing import Any

import pytest
from pipeline_lab import directory_lab, images

from larder.copy.run import copy
from larder.copy.settings import load_copy_settings
from larder.errors import FatalError
from larder.jobs.runner import InlineRunner
from larder.pipeline.prepare import prepare
from larder.progress import StageTimes
from larder.verify.run import VerifySettings, verify

FIELDS: dict[str, Any] = {"mirror": True, "cache": {"records": "encoded"}}
STAGES = ["inventory", "plan", "mirror", "shard", "cache", "verify"]


def runner() -> InlineRunner:
    """Its clock moves on by a minute whenever somebody looks."""
    minutes = count(0, 60)
    return InlineRunner(1, StageTimes(clock=lambda: float(next(minutes))))


@pytest.mark.parametrize("stage", STAGES)
def test_the_next_run_continues(stage, tmp_path):
    lab = directory_lab(tmp_path, images("abc", 5), **FIELDS)
    limited = lab.settings(cluster={"limits": {f"{stage}_seconds": 1}})
    with pytest.raises(FatalError) as caught:
        _ = prepare(limited, runner()) and verify(VerifySettings(limited), runner())
    assert caught.value.code == "run.time_limit"
    assert f"limits.{stage}_seconds" in caught.value.message
    lab.prepare()
    lab.only()


def test_a_copy_has_the_limits_of_its_cluster(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from/object").touch()
    (tmp_path / "clusters").mkdir()
    text = "storage: {url: /nowhere}\nlimits: {mirror_seconds: 1}\n"
    (tmp_path / "clusters/c.yaml").write_text(text)
    places = str(tmp_path / "from"), str(tmp_path / "to")
    settings = load_copy_settings(*places, cluster="c", config_dir=tmp_path)
    with pytest.raises(FatalError) as caught:
        copy(settings, runner())
    assert "limits.mirror_seconds" in caught.value.message
