"""Tasks that Dask and Ray send to other machines."""

import cloudpickle  # Prefect's
import pytest

from tasks.steps import ELSEWHERE


@pytest.mark.parametrize("step", ELSEWHERE, ids=lambda step: step.__name__)
def test_a_task_can_be_sent_to_another_machine(step):
    assert cloudpickle.loads(cloudpickle.dumps(ELSEWHERE[step])).name == ELSEWHERE[step].name
