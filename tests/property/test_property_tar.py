"""Whatever goes into a tar shard comes out of tarfile and of WebDataset."""

import io
import tarfile

import numpy as np
import webdataset.tariterators
from hypothesis import example, given
from hypothesis import strategies as st

from larder.shards.formats import tar

characters = st.one_of(
    st.sampled_from("abcn01_- é漢😀~="),
    st.characters(codec="utf-8", exclude_characters="\0/.", exclude_categories=["Cs"]),
)
folders = st.lists(st.text(characters, min_size=1, max_size=90), max_size=4)
# WebDataset skips a first segment such as __meta__; the planner refuses those keys.
stems = st.text(characters, min_size=1, max_size=90)
long_stems = st.integers(90, 300).map(lambda length: "n" * length)


@st.composite
def names(draw: st.DrawFn) -> str:
    stem = draw(st.one_of(stems, long_stems))
    return "/".join([*draw(folders), f"{stem}.bin"]).lstrip("_")


members = st.dictionaries(
    names(), st.integers(0, 1500).map(lambda size: b"\xa5" * size), min_size=1
)


def archive(content: dict[str, bytes]) -> bytes:
    pieces = []
    for name, data in content.items():
        pieces += [tar.member_header(name, len(data)), data, tar.padding(len(data))]
    return b"".join([*pieces, tar.END])


@given(members)
@example({"a" * length: b"" for length in (99, 100, 101, 155, 256)})
@example({"d" * n + "/" + "a" * m: b"" for n in (1, 99, 154, 155, 156) for m in (98, 99, 100, 101)})
def test_tarfile_reads_back_every_member(content):
    data = archive(content)
    with tarfile.open(fileobj=io.BytesIO(data)) as reader:
        found = {member.name: reader.extractfile(member).read() for member in reader}  # type: ignore[union-attr]
    assert found == content
    sizes = (tar.member_size(name, len(body)) for name, body in content.items())
    assert len(data) == sum(sizes) + len(tar.END)


@given(members)
def test_webdataset_reads_back_every_member(content):
    stream = io.BytesIO(archive(content))
    found = webdataset.tariterators.tar_file_iterator(stream, rename_files=None)
    assert {each["fname"]: each["data"] for each in found} == content


@given(st.lists(st.tuples(names(), st.integers(0, 8**11)), min_size=1))
def test_many_headers_are_those_of_each(pairs):
    each = [tar.member_header(*pair) for pair in pairs]
    sizes = np.array([size for _, size in pairs], np.int64)
    assert tar.member_headers([name for name, _ in pairs], sizes) == each
