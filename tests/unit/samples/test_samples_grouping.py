import io
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_names import split_key
from webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_iterator

from larder.samples.naming import bad_key_reason, normalise_ext

# Rich in what the rule turns on: dots, slashes, underscores, capitals.
keys = st.text("aB._/ é\n\x7f", max_size=12) | st.text(max_size=12)


@pytest.mark.parametrize(
    ("ext", "normal"),
    [("SEG.JPEG", "seg.jpg"), ("jpeg.txt", "jpg.txt"), ("jpegs", "jpegs"), (".jpg", ".jpg")],
)
def test_extensions_are_in_lower_case_and_jpeg_is_jpg(ext, normal):
    assert normalise_ext(ext) == normal


@pytest.mark.parametrize(
    "key",
    [
        *("a", "a.b/c", ".hidden.jpg", "a/.hidden.jpg", "a.", "a.__key__"),
        *("__meta.jpg__", "__MACOSX__/a.jpg", "/a.jpg", "a//b.jpg", "a/", ""),
        *("../a.jpg", "a/./b.jpg", "a/..", "a\nb.jpg", "a\x85.jpg", "\ud800.jpg"),
        "é" * 511 + ".jpg",
    ],
)
def test_bad_keys_have_a_reason(key):
    assert bad_key_reason(key)


@pytest.mark.parametrize(
    "key", ["a/__b__/c.jpg", "__a.jpg", "__a__b/c.jpg", "x" * 1_020 + ".jpg", "..a/b.c"]
)
def test_keys_that_only_look_bad(key):
    assert bad_key_reason(key) is None


@given(keys)
def test_keys_that_webdataset_cannot_split_are_bad(key):
    if base_plus_ext(key)[0] is None:
        assert bad_key_reason(key) is not None


@given(keys)
def test_normalising_once_is_enough(ext):
    assert normalise_ext(normalise_ext(ext)) == normalise_ext(ext)


@given(st.lists(keys, max_size=8, unique=True))
def test_webdataset_reads_good_keys_back_as_the_same_samples(found):
    members: dict[tuple[str, str], bytes] = {}
    for key in found:
        if bad_key_reason(key) is None:
            name = split_key(key)
            members.setdefault((name.sample_key, name.ext), key.encode())
    expected: dict[str, dict[str, bytes]] = {}
    for (sample_key, ext), data in sorted(members.items()):
        expected.setdefault(sample_key, {})[ext] = data
    assert _read_back(_tar(expected)) == expected


def _tar(samples: dict[str, dict[str, bytes]]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for sample_key, parts in samples.items():
            for ext, data in parts.items():
                info = tarfile.TarInfo(f"{sample_key}.{ext}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    file.seek(0)
    return file


def _read_back(file: io.BytesIO) -> dict[str, dict[str, bytes]]:
    def members() -> Iterator[dict[str, Any]]:
        for member in tar_file_iterator(file):
            yield {**member, "__url__": ""}

    samples = {}
    for sample in group_by_keys(members()):
        key = sample.pop("__key__")
        assert key not in samples
        sample.pop("__url__")
        samples[key] = sample
    return samples
