from typing import Any

import pytest


@pytest.fixture
def template() -> dict[str, Any]:
    return {
        "entrypoint": "python3 train.py",
        "hyperparameters": {"global_batch_size": 32},
        "searcher": {"name": "single", "metric": "loss"},
    }
