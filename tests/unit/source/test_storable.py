"""Keys are refused exactly where the store itself would refuse them."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from larder.disk import Folding
from larder.errors import ObjectError
from larder.samples.naming import bad_key_reason
from larder.source.unfit import Storage, Unfit, unfit_keys
from larder.store import Store, open_store
from tests.support.listings import object_batches

names = st.sampled_from(
    ["a", "a.b", "a.b-c.d", "a.bc", "x.jpg", ".larder-tmp-x", "k" * 252 + ".txt"]
)
keys = st.lists(names, min_size=1, max_size=4).map("/".join)


def unfit(store: Store, found: Sequence[str], prefix: str = "", cut: int = 1_000) -> Unfit:
    folder = Path(tempfile.gettempdir())
    return unfit_keys(
        lambda: object_batches(found, cut), Storage.of(store), prefix, work_dir=folder
    )


def refused(store: Store, found: Sequence[str], prefix: str = "") -> list[str]:
    bad = []
    for key in sorted(set(found), key=str.encode):
        if bad_key_reason(key) is None:
            try:
                store.put(prefix + key, b"x")
            except ObjectError:
                bad.append(key)
    return bad


@given(st.lists(keys, max_size=12), st.integers(1, 4))
@example(["a.b", "a.b-c.d", "a.b/x.jpg", "a.b/x.jpg/a.b", "a.bc"], 2)
@example(["a.b/x.jpg", "a/a.b"], 1)
def test_below_a_directory(found, cut):
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        result = unfit(store, found, "mirror/", cut)
        assert sorted(failure.key for failure in result.failures) == sorted(
            refused(store, found, "mirror/")
        )
    assert result.count == len(result.failures)
    assert all(failure.code == "object.bad_key" for failure in result.failures)


@pytest.mark.parametrize(
    ("found", "folding", "pairs"),
    [
        (["A/x.b", "a/x.b"], Folding(case=True), ["a/x.b A/x.b"]),
        (["A/x.b", "a-1/x.b", "a/y.b"], Folding(case=True), ["a/y.b A/x.b"]),
        (["A.b/x.b", "a.b", "a.b-1"], Folding(case=True), ["A.b/x.b a.b"]),
        (["A/x.b", "a/x.b"], Folding(form=True), []),
        (["\u00e9/x.b", "e\u0301/x.b"], Folding(form=True), ["\u00e9/x.b e\u0301/x.b"]),
        (["\u00c9/x.b", "e\u0301/x.b"], Folding(True, True), ["\u00c9/x.b e\u0301/x.b"]),
        (["a/x.b", "a/y.b", "b.b"], Folding(True, True), []),
    ],
)
def test_keys_that_a_file_system_takes_for_one(tmp_path, monkeypatch, found, folding, pairs):
    """File systems that do so cannot be mounted wherever the tests run: what one does is faked."""
    monkeypatch.setattr("larder.source.unfit.folding_of", lambda folder: folding)
    failures = unfit(open_store(str(tmp_path)), found, cut=2).failures
    named = [(one.key, one.message) for one in failures]
    assert len(named) == len(pairs)
    for (key, message), pair in zip(named, pairs, strict=True):
        assert sorted(pair.split()) == sorted([key, *(k for k in found if k in message)])


def test_a_path_that_is_too_long(tmp_path):
    root = str(tmp_path)
    while len(root) < 3_600:
        root += "/" + "d" * min(200, 3_600 - len(root) - 1)
    store = open_store(root)
    # The longest path has 4,095 bytes: the root's, a slash, and the key's.
    longest = "s" * 250 + "/" + "n" * (4_095 - 3_601 - 251 - 4) + ".txt"
    found = [longest, longest.replace("n.txt", "nn.txt")]
    assert [failure.key for failure in unfit(store, found).failures] == refused(store, found)
    assert refused(store, found) == [found[1]]


def test_the_storage_accepts_every_key_that_the_plan_accepts(tmp_path, monkeypatch):
    """An object of a short name has a longer one while it is written."""
    monkeypatch.setattr(os, "getpid", lambda: 4_194_304)  # the highest of Linux
    root = str(tmp_path)
    while len(root) < 3_800:
        root += "/" + "d" * 100
    store = open_store(root)
    found = [f"{'d' * length}/a.b" for length in range(250, 80, -1)]
    allowed = [key for key in found if Storage.of(store).reason(key) is None]
    assert 0 < len(allowed) < len(found)
    store.put(allowed[0], b"x")


@pytest.mark.parametrize("url", ["s3://bucket/some/prefix", "s3://bucket", "memory://unfit/prefix"])
def test_in_a_bucket_the_prefix_counts(url):
    store = open_store(url)
    before = len(store.url.partition("://")[2].partition("/")[2]) + len("mirror/")
    longest = "k" * (1_024 - before - 4) + ".txt"
    found = [longest, f"k{longest}", "a.b", "a.b/c.d"]
    result = unfit(store, found, "mirror/")
    assert [failure.key for failure in result.failures] == [found[1]]
