"""Archives: what shards hold is read by others, and members of any archive are found or refused."""

import io
import tarfile
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
import webdataset.tariterators
from hypothesis import assume, example, given
from hypothesis import strategies as st

from larder.errors import ObjectError
from larder.shards.formats import tar
from larder.source.expand.archives import TarMember, member_name, member_problem, tar_members
from tests.support.errors import larder_error

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


FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
KINDS = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.LNKTYPE: "hard link",
    tarfile.SYMTYPE: "symbolic link",
    tarfile.CHRTYPE: "special file",
    tarfile.FIFOTYPE: "special file",
}


class Entry(NamedTuple):
    name: str
    data: bytes
    kind: bytes


SEGMENTS = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1)
NAMES = st.one_of(
    st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join),
    st.integers(1, 300).map(lambda count: "d/" * (count % 40) + "n" * count),
    st.sampled_from(["./a/b.jpg", "a//b", "../up", "/absolute", "é" * 60 + ".jpg", "a\\b.png"]),
)
ENTRIES = st.lists(
    st.builds(
        Entry, NAMES, st.binary(max_size=2000), st.sampled_from([tarfile.REGTYPE] * 6 + [*KINDS])
    ),
    max_size=8,
)


def written(entries: Sequence[Entry], format_: int) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=format_) as file:
        for name, data, kind in entries:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.size = len(data) if kind in (tarfile.REGTYPE, tarfile.AREGTYPE) else 0
            info.linkname = "elsewhere" * 20
            if format_ == tarfile.USTAR_FORMAT:
                info.linkname = "elsewhere"
            try:
                file.addfile(info, io.BytesIO(data))
            except ValueError:  # a name that this format cannot hold
                assume(False)
    return target.getvalue()


def found(data: bytes, start: int = 0, stop: int | None = None) -> list[TarMember]:
    stop = len(data) if stop is None else stop
    return list(tar_members(lambda at, length: data[at : at + length], start, stop, "a.tar"))


@pytest.mark.parametrize("format_", FORMATS)
@given(ENTRIES, st.integers(0, 5).map(lambda blocks: 512 * blocks))
def test_an_archive_within_an_object_is_the_same(format_, entries, before):
    data = written(entries, format_)
    moved = found(b"x" * before + data + b"y" * 700, before, before + len(data))
    assert [each._replace(offset=each.offset - before) for each in moved] == found(data)


@given(ENTRIES.filter(bool), st.data())
def test_an_archive_that_was_cut_off_is_an_error(entries, draw):
    data = written(entries, tarfile.GNU_FORMAT).rstrip(b"\0")
    whole = -(-len(data) // 512) * 512  # where the zeros begin that end the written, at most
    cut = draw.draw(st.integers(0, max(0, min(len(data), whole - 512))))
    with larder_error("object.format", "a.tar"):
        found(data[:cut])


@given(ENTRIES.filter(bool), st.data())
def test_a_damaged_header_is_an_error(entries, draw):
    data = bytearray(written(entries, tarfile.USTAR_FORMAT))
    at = draw.draw(st.integers(0, 511))
    change = draw.draw(st.integers(1, 255))
    before = bytes(data[:512])
    data[at] ^= change
    try:
        members = found(bytes(data))
    except ObjectError as error:
        assert error.code == "object.format"  # noqa: PT017 - damage may also go unnoticed
    else:
        # What follows the digits of the checksum does not count, nor does a blank for a zero.
        assert members == found(before + bytes(data[512:]))


@given(st.binary(max_size=5000))
def test_anything_else_is_an_error_or_an_archive(data):
    try:
        found(data)
    except ObjectError as error:
        assert error.code == "object.format"  # noqa: PT017 - zeros are an written without members
    else:
        assert not data.strip(b"\0")


@given(NAMES, st.sampled_from(sorted(set(KINDS.values()))))
def test_names_without_a_problem_are_safe(name, kind):
    member = TarMember(name.encode("utf-8", "surrogateescape"), 0, 0, kind)  # type: ignore[arg-type]
    key = member_name(member.name)
    if member_problem(member, key) is None:
        assert kind == "file"
        assert not {"", ".", ".."} & set(key.split("/"))
        assert key.isprintable() or not any(ord(each) < 32 for each in key)
