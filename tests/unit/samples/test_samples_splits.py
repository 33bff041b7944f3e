import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.config.models.dataset import GlobSplits, HashSplits
from larder.errors import ConfigError
from larder.samples.naming import KeyPattern
from larder.samples.splits import NO_SPLIT, GlobRule, HashRule, seeded_hashes
from tests.support.errors import larder_error

# A change of these would move samples between splits of datasets that exist.
PINNED = [5528544737683584890, 12469378904431097364, 16847504294178027826]
PINNED_SPLITS = "000110000001000010000101001001011000000110001001000100000000"


def of_samples(rule: HashRule, keys: Iterable[str]) -> npt.NDArray[np.int16]:
    array = pa.array(list(keys), pa.string())
    return rule.of_samples(array, rule.of_objects(array))


def by_hash(seed: int, parts: dict[str, float], group: str | None = None) -> HashRule:
    return HashRule(HashSplits(by="hash", seed=seed, fractions=parts, group=group))


def test_the_first_glob_that_matches_wins():
    rule = GlobRule(GlobSplits({"a": ("x/*", "y/1*"), "b": ("y/**",), "c": ("**/c",)}))
    keys = pa.array(["x/c", "y/12", "y/2", "c", "z"])
    assert rule.of_objects(keys).tolist() == [0, 0, 1, 2, NO_SPLIT]


def test_hashes_are_pinned():
    found = seeded_hashes(7, b"larder split", ["train/a", "", "ü"])
    assert found.tolist() == PINNED
    assert found.dtype == np.uint64


def test_hash_splits_are_pinned():
    rule = by_hash(7, {"train": 0.8, "validation": 0.2})
    assert "".join(map(str, of_samples(rule, map(str, range(60))))) == PINNED_SPLITS


def test_fractions_that_do_not_add_up_because_of_rounding():
    parts = {f"s{at}": 0.1 for at in range(10)}
    found = of_samples(by_hash(1, parts), (f"k{at}" for at in range(5_000)))
    assert set(found.tolist()) == set(range(10))


@given(st.integers(), st.lists(st.text(max_size=4), max_size=5), st.text(max_size=4))
def test_a_hash_depends_on_its_own_key_alone(seed, others, key):
    alone = seeded_hashes(seed, b"x", [key])[0]
    assert seeded_hashes(seed, b"x", [*others, key])[-1] == alone


@pytest.mark.parametrize("key", ["other/1", "patient-"])
def test_a_key_without_the_group_is_named(key):
    rule = by_hash(3, {"a": 0.5, "b": 0.5}, r"patient-(\d+)?")
    with larder_error("config.unmatched_split", key):
        of_samples(rule, ["patient-1", key])


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


SLOW = "a" * 100 + "!"
"""A key for which the pattern takes 10^20 steps: a run could not be interrupted."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr("larder.samples.naming.SECONDS", 0.01)
    return monkeypatch


def test_an_expression_that_takes_too_long_is_refused_by_name(hasty):
    pattern = KeyPattern("(a|aa)+$", "labels.pattern")
    with larder_error("config.invalid_value", SLOW):
        pattern.groups([SLOW])
    hasty.undo()
    assert len(pattern.groups(["b"])) == 1, "it goes on"


def test_a_rule_for_groups_is_bounded(hasty):
    with pytest.raises(ConfigError):
        by_hash(1, {"train": 1}, "(a|aa)+$").hashes.of([SLOW])
