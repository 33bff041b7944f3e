"""Ranks that PyTorch spawns read their parts of every batch, in `.venv-readers`."""

from typing import Any

import pytest
from pipeline_lab import directory_lab, png
from required import read_with_frameworks

pytestmark = pytest.mark.push


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Any:
    objects = {f"train/{n % 3}-{n:02}.png": png(n) for n in range(22)}
    folder = tmp_path_factory.mktemp("lab")
    lab = directory_lab(folder, objects, splits={"train": "train/**"}, cache=None)
    lab.prepare()
    given = {"url": f"{lab.storage}/larder/d@latest", "folder": str(folder)}
    return read_with_frameworks("with_ranks", given)


@pytest.mark.parametrize("how", ["threads", "loader", "forked", "spawned", "lazy"])
def test_ranks_that_torch_spawns_divide_every_batch(read, how):
    parts = zip(*(rank[how] for rank in read["ranks"]), strict=True)
    assert [keys + others for keys, others in parts] == read["wanted"]


def test_a_rank_reads_everything_where_it_is_told_to(read):
    assert [rank["all"] for rank in read["ranks"]] == [read["wanted"]] * 2
