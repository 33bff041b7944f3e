"""The headers of archives that GNU tar writes, and those that nobody should."""

import os
import subprocess
from pathlib import Path

import pytest

from larder.source.expand.archives import (
    TarMember,
    is_archive,
    is_compressed_archive,
    member_name,
    member_problem,
    tar_members,
)
from tests.support.errors import larder_error

FILES = {"a/x.jpg": b"jpeg", "a/é.txt": b"text" * 300, "b.bin": b"2"}
FILES |= {"long/" * 30 + "name.txt": b""}


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
    for name, data in FILES.items():
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
def test_what_gnu_tar_writes(tree, format_):
    data = tar(tree, f"--format={format_}", "--sort=name")
    assert files(data) == FILES
    others = {member_name(each.name): each.kind for each in members(data) if each.kind != "file"}
    assert {name: kind for name, kind in others.items() if kind != "folder"} == {
        "link": "symbolic link",
        "z-hard": "hard link",
        "pipe": "special file",
    }


@pytest.mark.parametrize("options", [["--format=gnu"], ["--format=pax"]])
def test_sparse_files_are_told_from_others(tmp_path, options):
    with (tmp_path / "holes.bin").open("wb") as file:
        for place in range(40):  # more holes than one header has room for
            file.seek(place * 1_000_000)
            file.write(b"x" * 4096)
    (tmp_path / "plain.bin").write_bytes(b"1")
    data = tar(tmp_path, "--sparse", *options)
    assert files(data) == {"plain.bin": b"1"}
    (sparse,) = (each for each in members(data) if each.kind == "sparse file")
    assert member_name(sparse.name) == "holes.bin"


def header(name: bytes, size: bytes, flag: bytes = b"0", magic: bytes = b"ustar\x0000") -> bytes:
    block = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + size.ljust(12, b"\0")
    block += b"0" * 11 + b"\0" + b" " * 8 + flag + bytes(100) + magic
    block = block.ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


END = bytes(1024)


def test_a_size_above_8_gib_is_binary():
    size = b"\x80" + (9 * 2**30).to_bytes(11, "big")
    start = header(b"large.bin", size)
    after = header(b"next.bin", b"00000000001")
    pieces = {0: start, 512 + 9 * 2**30: after, 1536 + 9 * 2**30: END}

    def read(offset: int, length: int) -> bytes:
        found = (
            data[offset - at :] for at, data in pieces.items() if at <= offset < at + len(data)
        )
        return next(found, bytes(length))[:length]

    stop = 2560 + 9 * 2**30
    found = list(tar_members(read, 0, stop, "a.tar"))
    assert [(each.name, each.size_bytes) for each in found] == [
        (b"large.bin", 9 * 2**30),
        (b"next.bin", 1),
    ]


BROKEN = {
    "an empty object": b"",
    "gzip": b"\x1f\x8b" + bytes(1022),
    "zstd": b"\x28\xb5\x2f\xfd" + bytes(22),
    "no end after data": header(b"a", b"1") + bytes(512),
    "half an end": header(b"a", b"0") + bytes(300),
    "a bad second header": header(b"a", b"0") + b"x" * 1024,
    "a bad size": header(b"a", b"12x") + END,
    "a negative size": header(b"a", b"\xff" * 12) + END,
    "a huge size": header(b"a", b"\x80\xff" + b"\xff" * 10) + END,
    "a huge name": header(b"././@LongLink", b"77777777777", b"L") + END,
    "a name of nothing": header(b"././@LongLink", b"1", b"L") + b"a".ljust(512, b"\0") + END,
    "a PAX header without length": (
        header(b"x", b"13", b"x") + b"path=a.jpg\n".ljust(512, b"\0") + END
    ),
    "another archive behind it": header(b"a", b"0") + END + header(b"b", b"0") + END,
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_damage_is_an_error_of_the_archive(data):
    with larder_error("object.format", "a.tar"):
        members(data)


@pytest.mark.parametrize("blocks", [1, 4096, 5000])
def test_zeros_may_follow_an_archive_and_nothing_else(blocks):
    data = header(b"a", b"0") + END + bytes(512 * blocks)
    assert len(members(data)) == 1
    with larder_error("object.format", "a.tar"):
        members(data + bytes(511) + b"x")


UNSAFE = [b"/etc/passwd", b"a/../../x.jpg", b"..", b"a/./x.jpg", b"a//x.jpg", b"a/\x1b[31m.jpg"]
UNSAFE += [b"a\nb.jpg", b"\xff.jpg", b"a/", b"", b"./", b"a/b.tar.gz"]


@pytest.mark.parametrize("name", UNSAFE, ids=repr)
def test_unsafe_names_are_refused(name):
    assert member_problem(TarMember(name, 0, 0, "file"), member_name(name))


def test_usual_names_are_not():
    for name in ("a.jpg", "./a/b.c/d.jpg", "a\\b.jpg", "é/ü.txt", ".hidden", "a..b.jpg"):
        key = member_name(name.encode())
        assert member_problem(TarMember(name.encode(), 0, 0, "file"), key) is None
        assert key == name.removeprefix("./")
    assert member_name(b".//./a/b.jpg") == "a/b.jpg"
    assert member_name(b"\xff.jpg") == "\\xff.jpg"


def test_archives_are_known_by_their_names():
    assert all(map(is_archive, ["a.tar", "x/b.TAR", "a.tar.tar"]))
    assert not any(map(is_archive, ["tar", ".tar", "x/.tar", "a.tar/b", "a.tar.gz", "a.tarx"]))
    names = ["a.tar.gz", "a.tgz", "x/b.tar.zst", "c.TAR.XZ", "d.tbz2", "e.txz", "f.tar.bz2"]
    assert all(map(is_compressed_archive, names))
    assert not any(map(is_compressed_archive, ["a.gz", "a.tar", "json.zst", "x.jpg", ".tgz"]))
