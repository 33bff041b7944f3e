"""Parameters of flows, which a deployment or the form in Prefect's UI gives."""

import pytest
from prefect.exceptions import ParameterTypeError

from flows.copy import copy
from flows.prune import prune
from flows.verify import verify

PLACES = {"source": "from", "storage": "to"}


@pytest.mark.parametrize(
    ("flow", "given", "name", "values"),
    [
        (verify, {"dataset": "digits"}, "sample", [True, "5", "half"]),
        (verify, {"dataset": "digits"}, "seed", [True, 1.0, "7"]),
        (verify, {"dataset": "digits"}, "repair", [1, "yes"]),
        (prune, PLACES, "max_delete", [True, 10.0, "10"]),
        (copy, PLACES, "retry_failed", [1, "no"]),
    ],
)
def test_nothing_is_taken_for_something_else(flow, given, name, values):
    for value in values:
        with pytest.raises(ParameterTypeError, match=name):
            flow.validate_parameters({**given, name: value})


def test_whole_percentages_are_numbers():
    assert verify.validate_parameters({"dataset": "digits", "sample": 5})["sample"] == 5
