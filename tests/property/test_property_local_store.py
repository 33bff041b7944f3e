"""A directory lists like a bucket: the same keys, in the same order, from any start."""

import tempfile

from hypothesis import given
from hypothesis import strategies as st

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
