from typing import get_args

import pytest

from larder.config.models import Consumer
from larder.errors import ConfigError
from larder.experiments.delivery import RULES, TAKES, Situation, advise, choose


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
def test_the_table(requested, storage_url, delivery, rule):
    advice = choose(requested, storage_url)
    assert (advice.delivery, advice.rule) == (delivery, rule)


@pytest.mark.parametrize(
    ("requested", "storage_url"),
    [
        ("bind_mount", "s3://bucket/"),
        ("bucket", "file:///mnt/data/"),
        ("bucket", "/mnt/data"),
        ("auto", "memory://test/"),
        ("bind_mount", "memory://test/"),
    ],
)
def test_impossible_choices_are_refused(requested, storage_url):
    with pytest.raises(ConfigError) as caught:
        choose(requested, storage_url)
    assert caught.value.code == "config.invalid_value"
    assert caught.value.where == storage_url
    assert caught.value.hint


@pytest.mark.parametrize(
    ("requested", "storage_url", "delivery", "rule"),
    [
        ("auto", "/mnt/data", "bind_mount", "omitted-mount"),
        ("bind_mount", "/mnt/data", "bind_mount", "omitted-mount"),
        ("auto", "s3://bucket/", "bucket", "omitted-bucket"),
        ("bucket", "gs://bucket/", "bucket", "omitted-bucket"),
    ],
)
def test_shards_with_omitted_samples_are_not_named(requested, storage_url, delivery, rule):
    advice = choose(requested, storage_url, segments=2, omitted=1, unlisted=5)
    assert (advice.delivery, advice.rule, advice.shards) == (delivery, rule, False)
    assert "larder.open" in advice.sentence
    for whole in (choose(requested, storage_url), choose(requested, storage_url, unlisted=5)):
        assert whole.shards


@pytest.mark.parametrize(
    ("takes", "segments", "omitted", "unlisted", "refused"),
    [
        ("code", 9, 0, 9, None),
        ("code", 9, 9, 9, None),
        ("shards", 1, 0, 0, None),
        ("shards", 9, 0, 9, None),
        ("shards", 1, 1, 0, "omitted-needs-larder"),
        ("prefix", 1, 0, 0, None),
        ("prefix", 2, 0, 0, "prefix-needs-segment"),
        ("prefix", 1, 0, 1, "prefix-needs-segment"),
        ("prefix", 1, 1, 0, "omitted-needs-larder"),
        ("prefix", 2, 1, 1, "omitted-needs-larder"),
    ],
)
@pytest.mark.parametrize("scheme", ["file", "s3"])
def test_what_a_consumer_takes(takes, segments, omitted, unlisted, refused, scheme):
    situation = Situation("auto", scheme, takes, segments, omitted, unlisted)
    if refused is None:
        assert advise(situation).shards is (omitted == 0)
        return
    (rule,) = (rule for rule in RULES if rule.id == refused)
    with pytest.raises(ConfigError) as caught:
        advise(situation, where="s3://bucket/")
    assert (caught.value.code, caught.value.message) == (rule.code, rule.sentence)
    assert (rule.code == "version.omitted") == (omitted > 0)


def test_it_is_known_what_every_consumer_takes():
    kinds = get_args(Consumer.model_fields["kind"].annotation)
    assert set(TAKES) == set(kinds)
    assert set(TAKES.values()) <= {"code", "shards", "prefix"}
