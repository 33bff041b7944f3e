"""Copies and files of their records that were to be deleted, and were not, are deleted later."""

import os
import time
from functools import partial

import pytest
from copy_lab import broken, buckets, directories
from test_pruning import pruned

from larder.errors import LarderError, NotFoundError, PreconditionError, StoreError
from tests.support.runs import between
from tests.support.stores import Fail, LosingStore, denied


@pytest.mark.parametrize("days", [6, 8])
def test_a_replaced_manifest_goes_a_week_after_its_record(tmp_path, days):
    with directories(tmp_path, {"a": b"a"}) as lab:
        lab.copy()
        (first,) = (tmp_path / "storage/_larder/copy").glob("manifest-*")
        key = str(first.relative_to(tmp_path / "storage"))
        lab.add({"b": b"b"})
        with broken(lab.storage, "delete", effect=denied(), keys=[key]), pytest.raises(StoreError):
            lab.copy()
        past = time.time() - days * 86_400
        os.utime(first, (past, past))
        lab.add({"c": b"c"})
        lab.copy()
        assert first.exists() == (days == 6)
        assert sorted(lab.there()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "error",
    [NotFoundError("object.missing", "not found"), PreconditionError("object.changed", "changed")],
)
def test_a_copy_that_a_store_denies_to_have_is_pruned_once_it_is_listed(error):
    with buckets({"a": b"a", "b": b"b"}) as lab:
        lab.copy()
        lab.remove("b")
        with broken(lab.storage, "head", effect=Fail(error), keys=["b"]):
            pruned(lab, 1)
        assert sorted(lab.there()) == ["a", "b"]
        pruned(lab, 1)
        assert sorted(lab.there()) == ["a"]


@pytest.mark.parametrize("kept_bytes", [None, 10])
def test_nothing_is_pruned_if_its_list_is_lost(kept_bytes):
    with buckets({"a": b"a", "b": b"b"}) as lab:
        lab.copy()
        lab.remove("b")
        losing = partial(LosingStore, is_lost=lambda key: "/pruned-" in key, kept_bytes=kept_bytes)
        with between(losing), pytest.raises(LarderError):
            pruned(lab, 1)
        assert sorted(lab.there()) == ["a", "b"]
        pruned(lab, 1)
        assert sorted(lab.there()) == ["a"]
