"""TensorFlow's datasets, cached and read in `.venv-readers`, all in one process."""

from typing import Any

import pytest
from required import read_with_frameworks

pytestmark = pytest.mark.push


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return read_with_frameworks("with_datalayer", str(tmp_path_factory.mktemp("storage")))


def test_elements_and_their_spec_are_those_of_the_original(read):
    assert len(read["same"]) == 16
    assert not [name for name, same in read["same"].items() if not same]


def test_what_cannot_be_cached_is_refused(read):
    assert read["refused"] == {
        "endless": "run.endless",
        "empty": "config.invalid_value",
        "none": "config.invalid_value",
        "ragged tensor": "cache.schema",
        "sparse": "cache.schema",
        "datasets": "cache.schema",
        "named": "cache.schema",
        "too large": "store.full",
        "range": "cache.schema",
        "state": "config.invalid_value",
        "graph": "config.invalid_value",
    }
    assert "of the function" in read["failing"]


def test_a_batch_inside_is_warned_of(read):
    assert len([text for text in read["logged"] if "batch()" in text]) == 1


def test_each_iteration_is_an_epoch(read):
    shuffled = read["shuffled"]
    first, second = shuffled["epochs"]
    assert shuffled["cut"] == first[:2]
    assert sorted(first) == sorted(second) == list(range(5))
    assert len(shuffled["repeated"]) == 10
    assert len({tuple(first), tuple(second), tuple(shuffled["repeated"][:5])}) == 3
    assert [one for one, _ in shuffled["at once"]] == [other for _, other in shuffled["at once"]]
    assert read["offset"]["cut"] == second[2:4]
    assert read["offset"]["epochs"] == [second[2:], shuffled["repeated"][:5]]
    assert read["cardinality"] == 5


def test_batches_are_those_of_the_elements(read):
    batches, numbers = read["batches"], read["batches"]["apart"]
    assert batches["taken"] == [numbers[0:2], numbers[2:4], numbers[4:]]
    assert batches["dropped"] == [batches["second"][0:2], batches["second"][2:4]]
    assert (batches["same specs"], batches["counts"]) == (True, [3, 2])
    assert "greater than zero" in read["batch of none"]


def test_ranks_share_a_dataset(read):
    assert read["ranks"] == [[[0], [1], [2]], [[0], [1], [2], [3], [4], []]]


def test_the_example_of_the_page(read):
    assert len(read["page"]) == -(-1000 // 64)
    assert read["page"] != sorted(read["page"])


def test_a_builder_may_return_a_dataset(read):
    assert read["builder"] == [[number, str(number)] for number in range(4)]


def test_the_benchmark_runs(read):
    names = [name for name in read["benchmark"] if not name.endswith(", CPU")]
    works = ("build", "first opening", "tf.data", "torch", "numpy", "numpy, stacked")
    assert names == [f"{work}, 10 kB" for work in works]
