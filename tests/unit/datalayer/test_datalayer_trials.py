"""A resumed trial goes on at its batch, by whichever name a release of Determined says it."""

import pytest

import larder
from tests.support.errors import larder_error


@pytest.fixture(autouse=True)
def trial(monkeypatch, request):
    monkeypatch.setenv("DET_TRIAL_ID", request.node.name)
    monkeypatch.setenv("DET_HPARAMS", '{"global_batch_size": 2}')


def first() -> int:
    loader = larder.cache_train_dataset("d", "v1", rank=0, world=1)(lambda: range(10))()
    return int(next(iter(loader))[0])


@pytest.mark.parametrize(
    ("variables", "element"),
    [
        ({"DET_LATEST_BATCH": "3"}, 6),  # 0.17
        ({"DET_STEPS_COMPLETED": "3"}, 6),  # since 0.18.0
        ({"DET_STEPS_COMPLETED": "1", "DET_LATEST_BATCH": "3"}, 2),
        ({"DET_STEPS_COMPLETED": "0", "DET_LATEST_BATCH": "0"}, 0),
        ({}, 0),
    ],
    ids=str,
)
def test_a_trial_goes_on_where_its_release_says(variables, element, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert first() == element


def test_a_batch_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("DET_LATEST_BATCH", "none")
    with larder_error("config.invalid_value", "DET_LATEST_BATCH"):
        first()
