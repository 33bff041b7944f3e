"""The records of runs beside a version."""

from dataclasses import replace

import pytest

from larder.errors import DamageError
from larder.manifest.sealed import seal
from larder.versions import layout
from larder.versions.runs import RunRecord, read_run, read_runs, write_run

VERSION = "a" * 32
RECORD = RunRecord(
    dataset="d",
    version=VERSION,
    command="prepare",
    began="2026-11-27T20:18:26Z",
    published=True,
    tag="latest",
    after=VERSION,
    changes={"added": 2},
    names={"added": ("a/0", "ü/1")},
    milliseconds={"shard": 1_200},
)


def test_records_are_read_in_the_order_of_their_times(root):
    later = replace(RECORD, began="2026-11-28T01:00:00Z", published=False)
    for record in (later, RECORD, replace(RECORD, version="b" * 32)):
        write_run(root, record)
    assert list(read_runs(root, VERSION)) == [RECORD, later]
    assert read_run(root, layout.run_key(VERSION, later.began, "0" * 64)) is None


@pytest.mark.parametrize("field", [{"version": "b" * 32}, {"began": "today"}, {"format": "x"}])
def test_what_is_no_record_of_the_version_is_damage_and_left_out(root, field):
    key = layout.run_key(VERSION, RECORD.began, "0" * 64)
    root.put(key, seal(replace(RECORD, **field)))
    with pytest.raises(DamageError):
        read_run(root, key)
    assert list(read_runs(root, VERSION)) == []
