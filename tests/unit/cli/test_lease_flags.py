import pytest

from larder.catalog.leasing import lease
from larder.versions.leases import MAX_DAYS
from tests.support.errors import larder_error


@pytest.mark.parametrize(
    "flags",
    [
        {"version": "latest"},
        {"version": ""},
        {"holder": "bob"},
        {"version": "latest", "holder": "bob", "drop": ["x"]},
        {"version": "latest", "holder": "bob", "days": 0},
        {"version": "latest", "holder": "bob", "days": MAX_DAYS + 1},
    ],
)
def test_a_lease_that_is_half_described_is_refused(flags):
    with larder_error("config.invalid_flag"):
        lease(None, **flags)
