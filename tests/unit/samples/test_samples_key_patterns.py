"""Regular expressions of users in sample keys: bounded, and otherwise as Python has them."""

import re

import pytest

from larder.config.models.dataset import HashSplits
from larder.errors import ConfigError
from larder.samples.key_pattern import KeyPattern
from larder.samples.splits import HashRule
from tests.support.errors import larder_error

KEYS = ["dog/ab_017", "é/x_1", "no", "", "a" * 40 + "!", "emoji 😀/q_7", 'quote"\\/z_3']


@pytest.mark.parametrize(
    "text",
    [
        r"([a-z]+)_\d+$",
        r"(?:[^/]+/)*([^/]+)_\d+$",
        r"(x)?[a-z]+_",
        r"(?P<a>\w+)_(?=\d)",
        "()",
        "(.)",
    ],
)
def test_groups_are_those_of_python(text):
    matches = [re.search(text, key) for key in KEYS]
    expected = [match[1] if match else None for match in matches]
    assert KeyPattern(text, "labels.pattern").groups(KEYS) == expected


def test_an_expression_that_takes_too_long_is_refused_by_name(monkeypatch):
    """It went on for hours, and nothing could interrupt a run as a flow."""
    monkeypatch.setattr("larder.samples.key_pattern.SECONDS", 0.2)
    slow = "a" * 100 + "!"  # 10^20 steps
    pattern = KeyPattern("(a|aa)+$", "labels.pattern")
    with larder_error("config.invalid_value", slow):
        pattern.groups(["b", slow])
    assert len(pattern.groups(["b"])) == 1, "it goes on"


def test_a_rule_for_groups_is_bounded(monkeypatch):
    monkeypatch.setattr("larder.samples.key_pattern.SECONDS", 0.2)
    splits = HashSplits.model_validate(
        {"by": "hash", "seed": 1, "fractions": {"train": 1}, "group": "(a|aa)+$"}
    )
    with pytest.raises(ConfigError):
        HashRule(splits).hashes.of(["a" * 100 + "!"])
