"""A directory lists like a bucket: the same keys, in the same order, from any start."""

import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from larder.errors import ObjectError
from larder.store.keys import check_path_key, check_path_keys
from larder.store.local.store import LocalStore
from tests.support.stores import keys_of

SEGMENTS = st.text(alphabet="a-.0/bé\U0001f642", min_size=1, max_size=3).filter(
    lambda text: "/" not in text and text not in (".", "..")
)
KEYS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)
STARTS = st.text(alphabet="a-.0/bé\U0001f642", max_size=5)


def without_conflicts(keys: set[str]) -> list[str]:
    """The keys less those that would be both a file and a directory."""
    return sorted(
        (key for key in keys if not any(other.startswith(key + "/") for other in keys)),
        key=str.encode,
    )


@given(st.sets(KEYS, max_size=12).map(without_conflicts), st.lists(st.tuples(STARTS, STARTS)))
def test_a_directory_lists_like_a_bucket(keys, questions):
    with tempfile.TemporaryDirectory() as root:
        store = LocalStore(root)
        for key in keys:
            store.put(key, b"")
        for prefix, start_after in [("", ""), *questions]:
            listed = keys_of(store, prefix, start_after=start_after)
            assert listed == [
                key
                for key in keys
                if key.startswith(prefix) and key.encode() > start_after.encode()
            ]


ANY_KEYS = st.lists(
    st.text(alphabet="a.\n/\0é", max_size=4) | st.sampled_from(["a" * 256, "x" * 99])
)


def checked(keys: list[str]) -> list[bytes] | str:
    """The keys' bytes one by one, or the first error."""
    try:
        return [check_path_key(key, "file:///") for key in keys]
    except ObjectError as error:
        return str(error)


@settings(max_examples=5 * settings.default.max_examples)
@given(ANY_KEYS)
def test_keys_are_checked_together_as_one_by_one(keys):
    try:
        together: list[bytes] | str = check_path_keys(keys, "file:///")
    except ObjectError as error:
        together = str(error)
    assert together == checked(keys)
