"""Members of archives: wherever they lie, and whatever was cut off or damaged."""

import io
import tarfile
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from larder.errors import ObjectError
from larder.source.expand.archives import TarMember, member_name, member_problem, tar_members
from tests.support.errors import larder_error

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


def archive(entries: Sequence[Entry], format_: int) -> bytes:
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
    data = archive(entries, format_)
    moved = found(b"x" * before + data + b"y" * 700, before, before + len(data))
    assert [each._replace(offset=each.offset - before) for each in moved] == found(data)


@given(ENTRIES.filter(bool), st.data())
def test_an_archive_that_was_cut_off_is_an_error(entries, draw):
    data = archive(entries, tarfile.GNU_FORMAT).rstrip(b"\0")
    whole = -(-len(data) // 512) * 512  # where the zeros begin that end the archive, at most
    cut = draw.draw(st.integers(0, max(0, min(len(data), whole - 512))))
    with larder_error("object.format", "a.tar"):
        found(data[:cut])


@given(ENTRIES.filter(bool), st.data())
def test_a_damaged_header_is_an_error(entries, draw):
    data = bytearray(archive(entries, tarfile.USTAR_FORMAT))
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
        assert error.code == "object.format"  # noqa: PT017 - zeros are an archive without members
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
