"""Splits by class need labels that are known before there are splits."""

from typing import Any

import pytest
from pydantic import ValidationError

from larder.config.models.dataset import Dataset, HashSplits
from larder.versions.identity import split_rule

FRACTIONS = {"train": 0.5, "validation": 0.5}


def dataset(labels: Any, **splits: Any) -> Dataset:
    hashed = {"by": "hash", "seed": 1, "fractions": FRACTIONS, "stratify": True, **splits}
    return Dataset.model_validate(
        {"name": "x", "source": {"url": "/x"}, "splits": hashed, "labels": labels}
    )


@pytest.mark.parametrize(
    "labels",
    [None, {"files": {"train": "a.txt"}}, {"files": {"train": "a.txt", "validation": "b.txt"}}],
)
def test_labels_that_depend_on_splits_are_refused(labels):
    with pytest.raises(ValidationError):
        dataset(labels)


@pytest.mark.parametrize("labels", [{}, {"files": dict.fromkeys(FRACTIONS, "a.txt")}])
def test_labels_that_do_not_are_accepted(labels):
    described = dataset(labels)
    assert isinstance(described.splits, HashSplits)
    assert described.splits.stratify
    assert split_rule(described) == (
        '["hash",1,[["train",0.5],["validation",0.5]],null,"stratify"]'
    )


def test_other_splits_have_no_rule_that_depends_on_all_samples():
    assert split_rule(dataset(None, stratify=False)) == ""
