"""Regular expressions of users in sample keys: bounded, and otherwise as Python has them."""

from __future__ import annotations

import re

import pytest

from larder.config.models import HashSplits
from larder.errors import ConfigError, FatalError
from larder.samples import key_patterns
from larder.samples.key_patterns import KeyPattern, may_take_long
from larder.samples.splits import HashRule

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
def test_groups_are_those_of_python(text: str) -> None:
    matches = [re.search(text, key) for key in KEYS]
    expected = [match[1] if match else None for match in matches]
    assert KeyPattern(text, "labels.pattern").groups(KEYS) == expected


def test_many_keys_are_sent_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_patterns, "_KEYS", 3)
    pattern = KeyPattern(r"(?:(\d)x)+", "labels.pattern")
    assert pattern.groups([f"{at}x" for at in range(10)]) == [f"{at}" for at in range(10)]
    assert pattern.groups([]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"([a-z]+)_\d+$", False),
        (r"^(?:train|val)/([^/)*+]+)/", False),
        (r"patient-(\d+)", False),
        (r"(\(*)\)+x", False),
        ("(a+)+$", True),
        ("(a|b){2,}", True),
        ("(?:a)*(b)", True),
        ("(.*)_.*_.*_.*x", True),
    ],
)
def test_what_may_take_long(text: str, expected: bool) -> None:
    assert may_take_long(text) is expected


@pytest.mark.parametrize("text", ["^(a+)+$", "(a|aa)+$", "(.*)_.*_.*_.*_.*_.*_.*x$"])
def test_an_expression_that_takes_too_long_is_refused_by_name(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on for hours, and nothing could interrupt a run as a flow."""
    monkeypatch.setattr(key_patterns, "SECONDS", 0.2)
    slow = "a" * 60 + "_" * 200 + "!"
    pattern = KeyPattern(text, "labels.pattern")
    with pytest.raises(ConfigError, match=r"takes more than 0\.2 s") as caught:
        pattern.groups(["b", slow])
    assert (caught.value.where, caught.value.code) == (slow, "config.invalid_value")
    assert len(pattern.groups(["b"])) == 1, "it goes on"


def test_a_rule_for_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_patterns, "SECONDS", 0.2)
    splits = HashSplits.model_validate(
        {"by": "hash", "seed": 1, "fractions": {"train": 1}, "group": "^(a+)+$"}
    )
    with pytest.raises(ConfigError, match="takes more than"):
        HashRule(splits).of_samples(["a" * 60 + "!"])


def test_a_process_that_ended_is_an_error() -> None:
    pattern = KeyPattern("(a+)+$", "labels.pattern")
    assert pattern.groups(["aa"]) == ["aa"]
    assert pattern._process is not None
    pattern._process.kill()
    pattern._process.wait()
    with pytest.raises(FatalError, match="the process that searches sample keys ended"):
        pattern.groups(["aa"])
