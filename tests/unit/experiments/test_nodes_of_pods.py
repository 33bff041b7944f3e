"""A Pod is on one node: a cluster file with several needs another template."""

import copy

import pytest

from larder.experiments.consumers.kubernetes import config_files
from larder.experiments.delivery import ConfigRequest
from tests.support.errors import larder_error
from tests.unit.experiments.made import cluster_of, version_of
from tests.unit.experiments.test_kubernetes import BUCKET, POD, contents


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_pod_trains_on_one_node(nodes):
    url, delivery, options = BUCKET
    here = cluster_of("kubernetes", url, {"count": nodes}, **options)
    given = copy.deepcopy(POD), version_of(url, delivery), contents(), here
    if nodes == 1:
        assert config_files(ConfigRequest(*given))
        return
    with larder_error("config.invalid_experiment") as caught:
        config_files(ConfigRequest(*given))
    assert "nodes.count of the cluster file is 2" in caught.value.message
