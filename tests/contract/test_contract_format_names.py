"""A clean knows the files of every format: it leaves files with other names alone."""

import pytest

from larder.catalog.holdings import larders_files
from larder.shards.formats import FORMATS, shard_format
from larder.versions import layout


@pytest.mark.parametrize("name", FORMATS)
def test_a_clean_knows_the_files_of_a_shard(name):
    format_ = shard_format(name)
    shard = format_.shard_name("d-train", 3, 7 if format_.counted else 0)
    files = [layout.shard_key("0" * 32, "train", each) for each in format_.file_names(shard)]
    files += [
        layout.reader_index_key("0" * 32, index.kind, "train", index.file_name(shard))
        for index in format_.indexes
    ]
    assert [key for key in files if not larders_files("d").fullmatch(key)] == []
