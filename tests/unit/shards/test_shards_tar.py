import io
import os
import shutil
import subprocess
import tarfile

import numpy as np
import pytest
from required import missing

from larder.errors import ObjectError
from larder.shards.formats import tar
from tests.support.errors import larder_error


def archive(members: dict[str, bytes]) -> bytes:
    pieces = []
    for name, data in members.items():
        pieces += [tar.member_header(name, len(data)), data, tar.padding(len(data))]
    return b"".join([*pieces, tar.END])


def gnu_tar() -> str:
    for name in ("gtar", "tar"):
        path = shutil.which(name)
        if path:
            about = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
            if "GNU tar" in about.stdout:
                return path
    return missing("there is no GNU tar here")


MEMBERS = {
    "a.cls": b"7",
    "a.jpg": b"x" * 512,
    "folder/b.jpg": b"y" * 1000,
    "folder/empty.txt": b"",
    "d" * 60 + "/" + "n" * 39: b"a hundred bytes",
    "d" * 61 + "/" + "n" * 39: b"a hundred and one",
    "d" * 155 + "/" + "n" * 100: b"the longest of all",
}


def test_gnu_tar_makes_the_same_members(tmp_path):
    for name, data in MEMBERS.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o644)
    options = ["--format=ustar", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"]
    command = [gnu_tar(), *options, "-b1", "-cf", "-", *MEMBERS]
    made = subprocess.run(command, cwd=tmp_path / "in", capture_output=True, check=True)
    assert archive(MEMBERS) == made.stdout


@pytest.mark.parametrize("action", ["--list", "--extract", "--diff"])
def test_gnu_tar_reads_it_without_a_warning(tmp_path, action):
    names = [*MEMBERS, "höhe.png", "e" * 256 + ".jpg", "é" * 60 + "/b.jpg", "a b\tc\nd.jpg"]
    members = {name: name.encode() for name in names if len(name) < 250}
    (tmp_path / "shard.tar").write_bytes(archive(members))
    command = [gnu_tar(), "-f", "shard.tar"]
    if action == "--diff":
        subprocess.run([*command, "--extract"], cwd=tmp_path, check=True)
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [*command, action], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    if action == "--extract":
        assert {name: (tmp_path / name).read_bytes() for name in members} == members


@pytest.mark.parametrize(
    ("name", "header_bytes"),
    [
        *(("n" * 100, 512), ("n" * 101, 1536), ("n" * 520, 2048), ("/" + "n" * 100, 1536)),
        *(("d" * 155 + "/" + "n" * 100, 512), ("d" * 156 + "/" + "n" * 99, 1536)),
    ],
)
def test_a_pax_header_only_where_it_is_needed(name, header_bytes):
    assert len(tar.member_header(name, 0)) == header_bytes


@pytest.mark.parametrize("name", ["é" * 60 + "/big.mp4", "d/" + "n" * 100, "big.mp4"])
@pytest.mark.parametrize("size_bytes", [8**11 - 1, 8**11, 10**13])
def test_members_beyond_eight_gibibytes(name, size_bytes):
    with tarfile.open(fileobj=io.BytesIO(tar.member_header(name, size_bytes))) as reader:
        member = reader.next()
    assert (member.name, member.size, member.mode) == (name, size_bytes, 0o644)
    assert (member.mtime, member.uid, member.gid, member.uname) == (0, 0, 0, "")


@pytest.mark.parametrize("name", ["", "a/", "a\0b.jpg", "é\0.jpg", "n" * 200 + "/"])
def test_names_that_an_archive_cannot_contain_are_refused(name):
    with larder_error("object.bad_key") as caught:
        tar.member_header(name, 0)
    with pytest.raises(ObjectError) as of_many:
        tar.member_headers(["a.jpg", name, "b.jpg"], np.zeros(3, np.int64))
    assert str(of_many.value) == str(caught.value)
