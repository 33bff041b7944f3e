"""The headers of archives that GNU tar writes, and those that nobody should."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from larder.errors import ObjectError
from larder.source.expand.tar_members import (
    TarMember,
    is_archive,
    is_compressed_archive,
    member_name,
    member_problem,
    tar_members,
)

LONG = "long/" * 30 + "name.txt"


def members(data: bytes) -> list[TarMember]:
    return list(tar_members(lambda at, length: data[at : at + length], 0, len(data), "a.tar"))


def files(data: bytes) -> dict[str, bytes]:
    return {
        member_name(each.name): data[each.offset : each.offset + each.size_bytes]
        for each in members(data)
        if each.kind == "file"
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, data in {
        "a/x.jpg": b"jpeg",
        "a/é.txt": b"text" * 300,
        LONG: b"",
        "b.bin": b"2",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (root / "link").symlink_to("b.bin")
    os.link(root / "b.bin", root / "z-hard")
    os.mkfifo(root / "pipe")
    return root


def tar(root: Path, *options: str) -> bytes:
    command = ["tar", "-C", str(root), *options, "-cf", "-", "."]
    return subprocess.run(command, check=True, capture_output=True).stdout


@pytest.mark.parametrize("format_", ["gnu", "oldgnu", "pax", "ustar"])
def test_what_gnu_tar_writes(tree: Path, format_: str) -> None:
    data = tar(tree, f"--format={format_}", "--sort=name")
    assert files(data) == {
        "a/x.jpg": b"jpeg",
        "a/é.txt": b"text" * 300,
        "b.bin": b"2",
        LONG: b"",
    }
    others = {member_name(each.name): each.kind for each in members(data) if each.kind != "file"}
    assert {name: kind for name, kind in others.items() if kind != "folder"} == {
        "link": "symbolic link",
        "z-hard": "hard link",
        "pipe": "special file",
    }


def test_what_v7_tar_wrote(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.jpg").write_bytes(b"jpeg")
    data = tar(tmp_path, "--format=v7")
    assert files(data) == {"d/x.jpg": b"jpeg"}
    assert {each.kind for each in members(data)} == {"file", "folder"}


@pytest.mark.parametrize("options", [["--format=gnu"], ["--format=pax"]])
def test_sparse_files_are_told_from_others(tmp_path: Path, options: list[str]) -> None:
    with (tmp_path / "holes.bin").open("wb") as file:
        for place in range(40):  # more holes than one header has room for
            file.seek(place * 1_000_000)
            file.write(b"x" * 4096)
    (tmp_path / "plain.bin").write_bytes(b"1")
    data = tar(tmp_path, "--sparse", *options)
    assert files(data) == {"plain.bin": b"1"}
    (sparse,) = (each for each in members(data) if each.kind == "sparse file")
    assert member_name(sparse.name) == "holes.bin"


def test_a_volume_label_is_not_a_member(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(b"jpeg")
    data = tar(tmp_path, "--label=backup of today")
    assert [member_name(each.name) for each in members(data)] == ["", "x.jpg"]


def header(name: bytes, size: bytes, flag: bytes = b"0", magic: bytes = b"ustar\x0000") -> bytes:
    block = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size.ljust(12, b"\0")
    block += b"0" * 11 + b"\0" + b" " * 8 + flag + bytes(100) + magic
    block = block.ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


END = bytes(1024)


def test_a_size_above_8_gib_is_binary() -> None:
    size = b"\x80" + (9 * 2**30).to_bytes(11, "big")
    start = header(b"large.bin", size)
    after = header(b"next.bin", b"00000000001")
    pieces = {0: start, 512 + 9 * 2**30: after, 1536 + 9 * 2**30: END}

    def read(offset: int, length: int) -> bytes:
        return next(
            data[offset - at : offset - at + length]
            for at, data in pieces.items()
            if at <= offset < at + len(data)
        )

    stop = 2560 + 9 * 2**30
    found = list(tar_members(read, 0, stop, "a.tar"))
    assert [(each.name, each.size_bytes) for each in found] == [
        (b"large.bin", 9 * 2**30),
        (b"next.bin", 1),
    ]


def test_a_size_above_8_gib_in_a_pax_header() -> None:
    data = io.BytesIO()
    info = tarfile.TarInfo("large.bin")
    info.size = 9 * 2**30
    data.write(info.tobuf(tarfile.PAX_FORMAT))
    headers = data.getvalue()
    end = len(headers) + info.size

    def read(offset: int, length: int) -> bytes:
        return headers[offset : offset + length] if offset < len(headers) else bytes(length)

    (found,) = tar_members(read, 0, end + 1024, "a.tar")
    assert (found.name, found.offset, found.size_bytes) == (b"large.bin", len(headers), info.size)


def test_a_global_pax_header_applies_to_all_that_follow() -> None:
    target = io.BytesIO()
    headers = {"comment": "from git archive", "path": "every/name"}
    with tarfile.open(
        fileobj=target, mode="w", format=tarfile.PAX_FORMAT, pax_headers=headers
    ) as file:
        for name in ("a.txt", "é.txt"):
            file.addfile(tarfile.TarInfo(name))
    assert [each.name.decode() for each in members(target.getvalue())] == ["every/name", "é.txt"]


BROKEN = {
    "an empty object": (b"", "an archive cannot be empty: it ends at byte 0"),
    "text": (b"hello" * 300, "not a tar archive: no header at byte 0"),
    "gzip": (b"\x1f\x8b" + bytes(1022), "not a tar archive, but compressed with gzip"),
    "short": (b"\x28\xb5\x2f\xfd" + bytes(22), "not a tar archive, but compressed with zstd"),
    "no end": (header(b"a", b"0"), "it does not end with zeros, but at byte 512"),
    "no end after data": (
        header(b"a", b"1") + bytes(512),
        "does not end with zeros, but at byte 1,024",
    ),
    "half a header": (header(b"a", b"0")[:300], "the archive is cut off at byte 0"),
    "half a member": (
        header(b"a.jpg", b"1750") + b"x" * 512,
        "cut off: the 1,000 bytes of a.jpg begin at byte 512",
    ),
    "a bad second header": (header(b"a", b"0") + b"x" * 1024, "no header at byte 512"),
    "a bad size": (header(b"a", b"12x") + END, "an invalid size in the header at byte 0"),
    "a negative size": (
        header(b"a", b"\xff" * 12) + END,
        "an invalid size in the header at byte 0",
    ),
    "a huge size": (
        header(b"a", b"\x80\xff" + b"\xff" * 10) + END,
        "an invalid size in the header",
    ),
    "a huge name": (header(b"././@LongLink", b"77777777777", b"L") + END, "an extended header of"),
    "a PAX header without length": (
        header(b"x", b"13", b"x") + b"path=a.jpg\n".ljust(512, b"\0") + END,
        "an invalid PAX header at byte 512",
    ),
    "a PAX size that is no number": (
        header(b"x", b"15", b"x") + b"13 size=0x10\n".ljust(512, b"\0") + header(b"a", b"0") + END,
        "an invalid size in the PAX header at byte 1,024",
    ),
    "another archive behind it": (
        header(b"a", b"0") + END + header(b"b", b"0") + END,
        "something follows the archive's end, such as another archive, at byte 512",
    ),
}


@pytest.mark.parametrize(("data", "message"), BROKEN.values(), ids=BROKEN)
def test_damage_is_named_with_its_place(data: bytes, message: str) -> None:
    with pytest.raises(ObjectError, match=r"a\.tar: ") as caught:
        members(data)
    assert message in str(caught.value)
    assert caught.value.code == "object.format"


def test_checksums_of_signed_bytes_count() -> None:
    block = header("é.txt".encode(), b"0")
    signed = sum(
        byte - 256 if byte >= 0x80 else byte for byte in block[:148] + b" " * 8 + block[156:]
    )
    block = block[:148] + b"%06o\0 " % signed + block[156:]
    assert [each.name.decode() for each in members(block + END)] == ["é.txt"]


PROBLEMS = {
    b"/etc/passwd": "begins with /",
    b"a/../../x.jpg": "contains a segment ..",
    b"..": "contains a segment ..",
    b"a/./x.jpg": "contains a segment .",
    b"a//x.jpg": "contains an empty segment",
    b"a/\x1b[31m.jpg": "contains a control character",
    b"a\nb.jpg": "contains a control character",
    b"\xff.jpg": "is not UTF-8",
    b"a/": "is empty or ends in /",
    b"": "is empty or ends in /",
    b"./": "is empty or ends in /",
    b"a/b.tar.gz": "a compressed archive cannot be read by ranges",
}


@pytest.mark.parametrize(("name", "problem"), PROBLEMS.items(), ids=map(repr, PROBLEMS))
def test_unsafe_names_are_refused(name: bytes, problem: str) -> None:
    found = member_problem(TarMember(name, 0, 0, "file"), member_name(name))
    assert found is not None
    assert found.endswith(problem)


def test_usual_names_are_not() -> None:
    for name in ("a.jpg", "./a/b.c/d.jpg", "a\\b.jpg", "é/ü.txt", ".hidden", "a..b.jpg"):
        key = member_name(name.encode())
        assert member_problem(TarMember(name.encode(), 0, 0, "file"), key) is None
        assert key == name.removeprefix("./")
    assert member_name(b".//./a/b.jpg") == "a/b.jpg"
    assert member_name(b"\xff.jpg") == "\\xff.jpg"


def test_archives_are_known_by_their_names() -> None:
    assert all(map(is_archive, ["a.tar", "x/b.TAR", "a.tar.tar"]))
    assert not any(map(is_archive, ["tar", ".tar", "x/.tar", "a.tar/b", "a.tar.gz", "a.tarx"]))
    names = ["a.tar.gz", "a.tgz", "x/b.tar.zst", "c.TAR.XZ", "d.tbz2", "e.txz", "f.tar.bz2"]
    assert all(map(is_compressed_archive, names))
    assert not any(map(is_compressed_archive, ["a.gz", "a.tar", "json.zst", "x.jpg", ".tgz"]))
