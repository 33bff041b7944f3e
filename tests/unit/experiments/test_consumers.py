from typing import get_args

import pytest

from larder.config.models import Consumer, Experiment
from larder.experiments.consumers.registry import CONSUMERS


def test_the_cluster_file_names_every_consumer():
    assert set(get_args(Consumer.model_fields["kind"].annotation)) == CONSUMERS.keys()


@pytest.mark.parametrize("kind", CONSUMERS)
def test_the_dataset_file_names_every_delivery(kind):
    deliveries = CONSUMERS[kind].DELIVERIES
    assert deliveries
    assert set(deliveries) < set(get_args(Experiment.model_fields["delivery"].annotation))
