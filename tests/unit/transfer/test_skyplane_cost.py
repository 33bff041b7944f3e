"""What a Skyplane transfer costs."""

from __future__ import annotations

import pytest

from larder.errors import ConfigError
from larder.transfer.engines.skyplane_cost import MACHINES, check_cost, predict, spent_usd


def test_a_prediction_has_egress_machines_and_their_start() -> None:
    cost = predict(
        ("s3", "gs"),
        total_bytes=600 * 10**9,
        egress_usd_per_gb=0.09,
        max_instances=2,
        most_seconds=3600,
    )
    assert cost.seconds == 150 + 500  # 0.6 GB/s from each of two machines
    assert cost.egress_usd == pytest.approx(54.0)
    assert cost.machines_usd == pytest.approx(2 * (2.60 + 1.40) * 650 / 3600)
    assert cost.most_usd == pytest.approx(54.0 + 2 * (2.60 + 1.40))
    assert cost.usd < cost.most_usd


def test_nothing_is_refused_without_a_limit_or_at_it() -> None:
    cost = predict(
        ("gs", "s3"), total_bytes=0, egress_usd_per_gb=0, max_instances=1, most_seconds=3600
    )
    check_cost(cost, None)
    check_cost(cost, 4.0)
    with pytest.raises(ConfigError, match=r"up to \$4.00 .* more than max_cost_usd 3.99"):
        check_cost(cost, 3.99)


def test_what_was_spent_is_by_machine_and_hour() -> None:
    machines = [("aws:us-east-1", "m5.8xlarge")] * 2 + [("gcp:us-central1-a", "n2-standard-16")]
    hours, usd = spent_usd(machines, seconds=1800, sent_bytes=10**9, egress_usd_per_gb=0.1)
    assert hours == pytest.approx(1.5)
    assert usd == pytest.approx((2 * 2.60 + 1.40) / 2 + 0.1)
    assert spent_usd([], seconds=0, sent_bytes=0, egress_usd_per_gb=0.1) == (0, 0)


def test_every_price_says_where_it_is_from() -> None:
    for machine in MACHINES.values():
        assert machine.source
        assert machine.date.startswith("20")
