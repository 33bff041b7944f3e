"""Elements of any form are read as they were cached, by any number of ranks, from any offset."""

import tempfile
from itertools import chain
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import larder
from larder.cache.schema import DTYPES
from larder.datalayer.elements import STRINGS, VIEWED, assembled, flattened

DTYPE = st.sampled_from(sorted({*DTYPES, *VIEWED, *STRINGS} - {"bfloat16"}))
KEYS = st.text(st.characters(exclude_categories=("C", "Z")), max_size=4)
LEAF = st.tuples(DTYPE, st.lists(st.sampled_from([0, 1, 2, None]), max_size=3))
FORMS: Any = st.recursive(
    LEAF.map(lambda leaf: np.array(leaf, object)),
    lambda inner: (
        st.dictionaries(KEYS, inner, min_size=1, max_size=3)
        | st.lists(inner, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=4,
)


def array(dtype: str, shape: list[int | None], random: np.random.Generator) -> Any:
    """Of a shape, whose open dimensions are of any length; of no strings nobody knows the kind."""
    least = 1 if dtype == "str" else 0
    size = tuple(int(random.integers(least, 3)) if n is None else max(least, n) for n in shape)
    values = random.integers(0, 256, (*size, 16), dtype=np.uint8)
    if dtype not in STRINGS:
        bits = np.dtype(dtype).itemsize
        return (values[..., :bits] & 1).copy().view(dtype)[..., 0]
    texts = np.empty(size, object)
    for place in np.ndindex(size):
        text = "".join(map(chr, values[place][: values[place][0] % 5]))
        texts[place] = text if dtype == "str" else text.encode()
    return texts if size else texts[()]


FILE_BYTES = st.sampled_from([1, 20, 60, 10**9])


@given(
    *(FORMS, st.integers(1, 12), st.integers(1, 4), st.integers(0, 20), st.integers(0, 99)),
    FILE_BYTES,
)
def test_what_is_cached_is_read(form, count, world, offset, seed, file_bytes):
    random = np.random.default_rng(seed)
    paths, leaves = zip(*flattened(form), strict=True)
    elements = [
        assembled(paths, [array(*leaf.tolist(), random) for leaf in leaves]) for _ in range(count)
    ]
    with tempfile.TemporaryDirectory() as folder:
        options: Any = {"storage": folder, "cache_dir": folder, "file_bytes": file_bytes}
        decorate = larder.cache_validation_dataset("d", "v", **options)
        check(list(decorate(lambda: elements)()), elements)
        if count < world:
            return
        train = [
            larder.cache_train_dataset(
                "d", "v", True, rank=rank, world=world, offset=offset, **options
            )(lambda: range(count))()
            for rank in range(world)
        ]
        first = [[int(each) for each in loader] for loader in train]
        second = [[int(each) for each in loader] for loader in train]
        each = count // world
        assert {len(part) for part in first} == {each - offset % each}
        assert len({*chain(*first)}) == sum(map(len, first))
        assert len({*chain(*second)}) == each * world


def check(read: list[Any], elements: list[Any]) -> None:
    assert len(read) == len(elements)
    for one, other in zip(read, elements, strict=True):
        pairs = list(zip(flattened(one), flattened(other), strict=True))
        for (path, value), (wanted_path, wanted) in pairs:
            assert path == wanted_path
            assert np.asarray(value).dtype == np.asarray(wanted).dtype
            np.testing.assert_array_equal(value, wanted)
