"""Caches that were truncated or changed, or whose builder was killed."""

import itertools
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import lmdb
import numpy as np
import pytest

from larder.cache import cache_file_build
from larder.cache.cache_file_build import build_file
from larder.cache.cache_record import CacheFileFacts, Codec
from larder.cache.file import CacheFileReader, open_file
from larder.cache.group import GROUPS_KEY, group_key
from larder.cache.schema import Field, RecordSchema
from larder.errors import DamageError
from larder.readers.cache_reader import CacheReader
from tests.support.errors import larder_error
from tests.support.processes import run_python

SCHEMA = RecordSchema((Field("n", "int64"), Field("x", "uint8", (None,))))
CODEC = Codec(SCHEMA)


def values(number: int) -> dict[str, object]:
    return {"n": number, "x": np.random.default_rng(number).bytes(300)}


def build(path: Path, count: int = 100) -> CacheFileFacts:
    return build_file(CODEC.encode_each(map(values, range(count))), SCHEMA, path)


def flip(path: Path, data: bytes, at: int, bits: int = 1) -> None:
    path.write_bytes(data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :])


@pytest.mark.parametrize("left", [0, 1, 4096, 8192, 20_000, -4096, -1])
def test_a_file_cut_short_is_never_mapped(tmp_path, left):
    path = tmp_path / "a.mdb"
    facts = build(path)
    os.truncate(path, left if left >= 0 else facts.bytes + left)
    with larder_error("damage.size"):
        open_file(path, facts)


def test_a_flipped_bit_anywhere_is_found_by_verify(tmp_path):
    path = tmp_path / "a.mdb"
    facts = build(path)
    data = path.read_bytes()
    for at in [0, 16, 20, *range(100, facts.bytes, 997), facts.bytes - 1]:
        flip(path, data, at, 0x10)
        with larder_error("damage.digest"):
            open_file(path, facts, verify=True)


def test_a_flipped_bit_of_a_record_is_found_when_it_is_read(tmp_path):
    path = tmp_path / "a.mdb"
    facts = build(path)
    record = Codec(SCHEMA).encode(values(7), 7)
    data = path.read_bytes()
    for offset in (0, 9, 100, len(record) - 1):
        flip(path, data, data.index(record) + offset)
        with open_file(path, facts) as file:
            records = CacheReader([file])
            for read in (lambda file=file: file[7], lambda all=records: all.batch([6, 7])):
                with larder_error("damage.record"):
                    read()
            assert file[6]["n"] == 6
        for check_records in (True, False):
            with (
                open_file(path, facts, check_records=check_records) as file,
                larder_error("damage.record"),
            ):
                file.verify()


def test_another_file_is_refused_when_it_is_opened(tmp_path):
    """Of equal length, with records that match their checksums: another split, other records."""
    facts = build(tmp_path / "a.mdb")
    rows = ({"n": number + 1, "x": bytes(300)} for number in range(100))
    others = build_file(CODEC.encode_each(rows), SCHEMA, tmp_path / "b.mdb")
    assert others.bytes == facts.bytes
    for claimed in (others._replace(digest=facts.digest), others._replace(place="of/another")):
        with larder_error("damage.digest", str(tmp_path / "b.mdb")):
            open_file(tmp_path / "b.mdb", claimed)


def test_a_pointer_to_another_record_is_found_when_it_is_read(tmp_path, monkeypatch):
    """LMDB keeps a long value in pages of its own, and the number of the first with its key."""
    path = tmp_path / "a.mdb"
    monkeypatch.setattr(cache_file_build, "GROUP_BYTES", 1)
    rows = ({"n": number, "x": bytes(6_000)} for number in range(20))
    facts = build_file(CODEC.encode_each(rows), SCHEMA, path)
    data = path.read_bytes()
    with open_file(path, facts) as file:
        wanted = [file[number]["n"] for number in range(20)]

    def read(file: CacheFileReader, number: int) -> object:
        try:
            return file[number]["n"]
        except DamageError:
            return None

    seen = set()
    for match in re.finditer(rb"\0{7}[\0-\x13](?=[^\0]\0{7})", data):
        flip(path, data, match.end(), 2)  # a record takes two pages
        with open_file(path, facts) as file:
            numbers = [read(file, number) for number in range(20)]
            seen |= {number for number in range(20) if numbers[number] is None}
            assert all(one in (None, number) for one, number in zip(numbers, wanted, strict=True))
    assert len(seen) >= 10


def test_damage_to_the_places_of_records_is_found(tmp_path):
    """In a value, where all records begin, and the last one ends."""
    path = tmp_path / "a.mdb"
    facts = build(path, 1_000)
    data, size = path.read_bytes(), len(CODEC.encode(values(0)))
    begin = data.index(np.arange(size, 6 * size, size).astype("<u4").tobytes())  # of the second
    for place, byte in itertools.product(range(3), (b"\0", b"\xff")):
        at = begin + 4 * place
        path.write_bytes(data[:at] + 4 * byte + data[at + 4 :])
        for check_records in (True, False):
            with open_file(path, facts, check_records=check_records) as file:
                reader = CacheReader([file])
                for number in (place, place + 1):
                    with larder_error("damage.record", f"{path}, record {number}"):
                        file[number]
                    with larder_error("damage.record", f"{path}, record {number}"):
                        reader.batch([999, number])
                assert file[place + 2]["n"] == place + 2


def test_damage_to_the_numbers_of_records_is_found(tmp_path):
    path = tmp_path / "a.mdb"
    facts = build(path, 1_000)
    data = path.read_bytes()
    table = data.index(np.array([1_000], "<i8").tobytes())
    for offset in (-16, 0, 7, 8):
        flip(path, data, table + offset)
        with larder_error("damage.record", str(path)):
            open_file(path, facts)


def test_a_value_that_is_missing_is_damage(tmp_path):
    path = tmp_path / "a.mdb"
    facts = build(path, 1_000)

    def delete(key: bytes) -> CacheFileFacts:
        with (
            lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 30) as environment,
            environment.begin(write=True) as transaction,
        ):
            assert transaction.delete(key)
        return facts._replace(bytes=path.stat().st_size)

    with open_file(path, delete(group_key(1))) as file:
        assert file[0]["n"] == 0
        assert file[999]["n"] == 999
        with larder_error("damage.record", f"{path}, record 500"):
            file[500]
    without_groups = delete(GROUPS_KEY)
    with larder_error("damage.record", str(path)):
        open_file(path, without_groups)


@pytest.mark.parametrize("kind", ["empty", "zeros", "another", "of LMDB 1"])
def test_another_kind_of_file_is_refused(tmp_path, kind):
    path = tmp_path / "a.mdb"
    build(path)
    data = path.read_bytes()
    assert data[20:24] == b"\1\0\0\0"
    others = {"empty": b"", "zeros": bytes(8192), "another": b"SQLite format 3" * 1000}
    path.write_bytes(others.get(kind, data[:20] + b"\2" + data[21:]))
    with larder_error("cache.format"):
        open_file(path, CacheFileFacts(path.stat().st_size, "", "", 1))


BUILDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from larder.cache import cache_file_build
from test_faults_cache import CODEC, SCHEMA, build_file, values

def records():
    for number in range(10**9):
        if number == 500:
            print("under way", flush=True)
            sys.stdin.read()
        yield values(number)

cache_file_build.TRANSACTION_BYTES = 10_000
encoded = CODEC.encode_each(records())
build_file(encoded, SCHEMA, Path(sys.argv[2]))
"""


def test_a_killed_build_leaves_nothing_under_the_name(tmp_path):
    path = tmp_path / "a.mdb"
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", BUILDER, str(Path(__file__).parent), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as builder:
            assert builder.stdout is not None
            assert builder.stdout.readline() == b"under way\n"
            builder.send_signal(signal.SIGKILL)
        assert not path.exists()
        # The second build removed what the first one left a day ago.
        (left,) = tmp_path.iterdir()
        os.utime(left, (0, 0))
    facts = build(path)
    assert os.listdir(tmp_path) == ["a.mdb"]
    open_file(path, facts, verify=True).close()


FULL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_faults_cache import build
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
build(Path(sys.argv[2]))
"""


def test_a_full_disk_is_said_and_nothing_is_left(tmp_path):
    done = run_python("-c", FULL, Path(__file__).parent, tmp_path / "a.mdb")
    assert done.stderr.splitlines()[-1].startswith("larder.errors.StoreError: ")
    assert os.listdir(tmp_path) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 20_000
