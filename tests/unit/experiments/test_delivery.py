from __future__ import annotations

import pytest

from larder.errors import ConfigError
from larder.experiments.delivery import RULES, choose


@pytest.mark.parametrize(
    ("requested", "storage_url", "delivery", "rule"),
    [
        ("auto", "/mnt/data", "bind_mount", "mounted"),
        ("auto", "file:///mnt/data/", "bind_mount", "mounted"),
        ("auto", "s3://bucket/prefix/", "bucket", "same-region"),
        ("auto", "gs://bucket/", "bucket", "same-region"),
        ("bind_mount", "/mnt/data", "bind_mount", "requested"),
        ("bucket", "S3://bucket", "bucket", "requested-bucket"),
    ],
)
def test_the_table(requested: str, storage_url: str, delivery: str, rule: str) -> None:
    advice = choose(requested, storage_url)
    assert (advice.delivery, advice.rule) == (delivery, rule)


@pytest.mark.parametrize(
    ("requested", "storage_url", "words"),
    [
        ("bind_mount", "s3://bucket/", "needs a directory"),
        ("bucket", "file:///mnt/data/", "needs an object store"),
        ("bucket", "/mnt/data", "needs an object store"),
        ("auto", "memory://test/", "cannot reach"),
        ("bind_mount", "memory://test/", "cannot reach"),
    ],
)
def test_impossible_choices_are_refused(requested: str, storage_url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        choose(requested, storage_url)
    assert caught.value.code == "config.invalid_value"
    assert caught.value.where == storage_url
    assert caught.value.hint


def test_every_rule_has_a_reason_and_a_source() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.sentence
        assert rule.source
        assert rule.hint or rule.delivery
