"""The cache of a split of many segments, some of whose samples are omitted, reads like a list."""

import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from larder.cache.build import build_file
from larder.cache.file import CacheFileReader, open_file
from larder.cache.record import Codec
from larder.cache.schema import Field, RecordSchema
from larder.readers.cache import CacheReader
from larder.versions.omitted import Omitted

SIZES = (0, 1, 2, 7, 12)
"""Records of the files; the numbers of a file begin at 100 times its place."""

Case = list[tuple[int, list[bool]]]
"""For each segment, which file it has, and which of its records are omitted."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[CacheFileReader]]:
    folder: Path = tmp_path_factory.mktemp("files")
    schema = RecordSchema((Field("x", "int64"), Field("bytes", "uint8", (None,))))
    with ExitStack() as stack:
        readers = []
        for place, size in enumerate(SIZES):
            rows = ({"x": 100 * place + n, "bytes": bytes(n)} for n in range(size))
            encoded = Codec(schema).encode_each(rows)
            facts = build_file(encoded, schema, folder / f"{place}.mdb", limit_bytes=1 << 20)
            reader = open_file(folder / f"{place}.mdb", facts)
            readers.append(stack.enter_context(reader))
        yield readers


@st.composite
def cases(draw: st.DrawFn) -> Case:
    places = draw(st.lists(st.integers(0, len(SIZES) - 1), min_size=1, max_size=5))
    masks = (st.lists(st.booleans(), min_size=SIZES[n], max_size=SIZES[n]) for n in places)
    return [(place, draw(mask)) for place, mask in zip(places, masks, strict=True)]


@given(cases(), st.data())
@example([(3, [True] * 7), (4, [False, True] * 6), (0, []), (1, [True])], None)
def test_it_reads_like_the_list_of_what_is_left(files, case, data):
    model = [100 * place + row for place, mask in case for row, gone in enumerate(mask) if not gone]
    omitted = [Omitted.of_mask(np.array(mask, np.bool_)) for _, mask in case]
    reader = CacheReader([files[place] for place, _ in case], omitted)
    check(reader, model, data)


def check(reader: CacheReader, model: list[int], data: st.DataObject | None) -> None:
    assert len(reader) == len(model)
    assert [number(record) for record in reader] == model
    assert [number(reader[at]) for at in range(-len(model), len(model))] == model * 2
    for size in (1, 3, 100):
        batches = [batch["x"] for batch in reader.batches(size)]
        assert [int(x) for batch in batches for x in batch] == model
        assert all(len(batch) == size for batch in batches[:-1])
    for wrong in (len(model), -len(model) - 1):
        with pytest.raises(IndexError, match=f"record {wrong} of {len(model)}"):
            reader[wrong]
    reader.verify()
    if model and data:
        places = st.integers(-len(model), len(model) - 1)
        indices = data.draw(st.lists(places, max_size=8))
        batch = reader.batch(indices)
        assert [int(x) for x in batch["x"]] == [model[at] for at in indices]
        assert [len(x) for x in batch["bytes"]] == [model[at] % 100 for at in indices]


def number(record: dict[str, Any]) -> int:
    assert len(record["bytes"]) == record["x"] % 100
    return int(record["x"])


def test_it_is_pickled_with_what_is_omitted(files):
    mask = np.arange(12) % 3 == 0
    reader = CacheReader([files[4], files[2]], [Omitted.of_mask(mask), Omitted.none()])
    reader[3]
    with pickle.loads(pickle.dumps(reader)) as copy:
        check(copy, [400 + n for n in range(12) if n % 3] + [200, 201], None)
