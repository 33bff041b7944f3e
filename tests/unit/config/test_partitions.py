"""Servers and prices in the partitions of AWS."""

from contextlib import closing

import pytest
from botocore.session import get_session

from larder.config.urls import cloud_of, s3_server
from larder.copy.prices import egress_usd_per_gb
from larder.copy.site import Site

SESSION = get_session()
REGIONS = {
    name: SESSION.get_available_regions("s3", name)[-1]
    for name in SESSION.get_available_partitions()
}


@pytest.mark.parametrize("partition", REGIONS)
def test_the_server_of_a_region_is_that_of_botocore(partition):
    region = REGIONS[partition]
    with closing(SESSION.create_client("s3", region)) as client:
        assert s3_server(region) == client.meta.endpoint_url
    assert cloud_of(s3_server(region)) == "aws"


@pytest.mark.parametrize("partition", sorted(REGIONS.keys() - {"aws"}))
def test_no_price_is_known_between_partitions(partition):
    here, there = Site("aws", "us-east-1", bucket="a"), Site("aws", REGIONS[partition], bucket="b")
    assert egress_usd_per_gb(here, there) is None
    assert egress_usd_per_gb(there, here) is None
