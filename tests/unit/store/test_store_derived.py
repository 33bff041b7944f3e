from collections.abc import Iterator
from pathlib import Path

import pytest

from larder.errors import LarderError
from larder.manifest.extents import in_object, in_own
from larder.store import Store, open_store
from larder.store.derived import DerivedObjects
from tests.support.memory import MemoryStore, forget

DATA = bytes(range(256))


@pytest.fixture(params=["memory", "directory"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "directory":
        yield open_store(str(tmp_path / "source"))
    else:
        yield MemoryStore("derived-source")
        forget("derived-source")


@pytest.fixture
def own(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "own"))


@pytest.fixture
def derived(source: Store, own: Store) -> DerivedObjects:
    return DerivedObjects(source, lambda: own)


def test_a_member_is_a_range_of_its_container(source, derived):
    etag = source.put("a/é.tar", DATA).etag
    end = in_object("a/é.tar", etag)
    member, key = f"@10+20{end}", "a/é.tar/x.jpg"
    assert derived.get(key, if_match=member) == DATA[10:30]
    assert derived.get(key, offset=5, length=7, if_match=member) == DATA[15:22]
    assert derived.get(key, offset=15, length=70, if_match=member) == DATA[25:30]
    with derived.open(key, offset=5, if_match=member) as reader:
        assert reader.info.size_bytes == 20
        assert (reader.info.key, reader.info.etag) == (key, member)
        assert b"".join(reader) == DATA[15:30]
    assert derived.get(key, if_match=f"@10+0{end}") == b""
    with derived.open(key, if_match=f"@10+0{end}") as reader:
        assert list(reader) == []


def test_other_objects_are_larders_own_or_those_of_the_store(source, own, derived):
    own.put("abc.jsonl", DATA)
    assert derived.get("any/key.json", if_match=f"@1+3{in_own('abc.jsonl')}") == DATA[1:4]
    etag = source.put("b.jpg", DATA).etag
    for member in (etag, None):
        assert derived.get("b.jpg", offset=1, length=2, if_match=member) == DATA[1:3]
    with derived.open("b.jpg", offset=1, length=2, if_match=etag) as reader:
        assert b"".join(reader) == DATA[1:3]


def test_members_and_objects_are_read_together(source, derived):
    info, container = source.put("b.jpg", DATA), source.put("a.tar", DATA)
    end = in_object("a.tar", container.etag)
    plain = ("b.jpg", len(DATA), info.etag)
    members = [(f"a.tar/{number}.jpg", 2, f"@{number}+2{end}") for number in range(3)]
    contents = [DATA[number : number + 2] for number in range(3)]
    assert list(derived.get_each([plain, *members, plain])) == [DATA, *contents, DATA]
    assert list(derived.get_each([plain])) == [DATA]


@pytest.mark.parametrize(
    ("first", "etag", "now", "code"),
    [(10, None, DATA[::-1] + b"x", "object.changed"), (250, "", DATA, "object.truncated")],
    ids=["changed", "too short"],
)
def test_another_container_is_noticed(source, derived, first, etag, now, code):
    listed = source.put("a.tar", DATA).etag
    member = f"@{first}+20{in_object('a.tar', listed if etag is None else etag)}"
    source.put("a.tar", now)
    for read in (
        lambda: derived.get("a.tar/x.jpg", if_match=member),
        lambda: list(derived.open("a.tar/x.jpg", if_match=member)),
    ):
        with pytest.raises(LarderError, match=r"a\.tar: ") as caught:
            read()
        assert caught.value.code == code


def test_larders_own_containers_are_opened_only_when_one_is_read(source):
    def refuse() -> Store:
        raise AssertionError("nothing needs it")

    source.put("b.jpg", DATA)
    assert DerivedObjects(source, refuse).get("b.jpg") == DATA
