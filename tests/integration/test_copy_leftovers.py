"""Files that a copy names no more, and was stopped before it deleted them, go a week later."""

import os
import time

import pytest
from copy_lab import broken, directories

from larder.errors import StoreError
from tests.support.stores import denied


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
