"""Receipts of sets of copies: which are written, when, and what is found of them."""

import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from larder.copy import copy_receipts as module
from larder.copy.copy_place import CopyPlace, Origin
from larder.copy.copy_receipts import CopyReceipt, CopySets, find_receipts, receipt_rows
from larder.copy.proof import CopiedObject
from larder.errors import RetryableError
from larder.jobs.manifests import forget
from larder.jobs.results import Totals
from larder.store import open_store
from larder.store.base import ObjectInfo, Store
from larder.store.delegate import DelegatingStore
from tests.support.locks import ToldLock
from tests.support.processes import wait_until
from tests.support.stores import FaultyStore, RecordingStore, unavailable

PLACE = CopyPlace(Origin("s3://source/"))
RUN = "00c0ffee00c0ffee"


@pytest.fixture
def root() -> RecordingStore:
    return RecordingStore(open_store(f"memory://{uuid.uuid4().hex}/"))


@pytest.fixture
def sets(root: RecordingStore, tmp_path: Path) -> Callable[..., CopySets]:
    def make(store: Store = root, receipts: Sequence[CopyReceipt] = ()) -> CopySets:
        prefix = f"{PLACE.receipts}{RUN}-"
        return CopySets(store, prefix, tmp_path, set_bytes=10, receipts=receipts)

    return make


def infos(*sizes: int) -> list[ObjectInfo]:
    return [ObjectInfo(chr(97 + number), size, "e", 0) for number, size in enumerate(sizes)]


def copy_of(info: ObjectInfo) -> CopiedObject:
    return CopiedObject(info.key, info.size_bytes, "e", 7, None, "m", "md5")


def copy(sets: CopySets, objects: Iterable[ObjectInfo]) -> None:
    for info in objects:
        sets.copied(copy_of(info))
        sets.write()


def found(root: Store) -> dict[tuple[int, int], str]:
    """By first row and number of rows, the keys in a receipt."""
    return {
        (each.rows.start, len(each.rows)): "".join(
            key for rows in receipt_rows(root, [each]) for key in rows.column("key").to_pylist()
        )
        for each in find_receipts(root, PLACE, RUN)
    }


def test_a_set_is_written_once_it_is_full_and_its_objects_have_ended(root, sets):
    with sets() as batch:
        copy(batch, batch.divide(infos(4, 6, 99, 1, 9, 1), 50))
        assert found(root) == {(50, 2): "ab", (52, 1): "c", (53, 2): "de"}
    assert found(root) == {(50, 2): "ab", (52, 1): "c", (53, 2): "de", (55, 1): "f"}
    assert batch.done == Totals(6, 120)


def test_a_set_has_a_maximum_number_of_objects(root, sets, monkeypatch):
    monkeypatch.setattr(module, "SET_OBJECTS", 2)
    with sets() as batch:
        copy(batch, batch.divide(infos(0, 0, 0), 0))
    assert found(root) == {(0, 2): "ab", (2, 1): "c"}


def test_a_slow_object_keeps_only_its_own_set_open(root, sets):
    with sets() as batch:
        slow, *others = batch.divide(infos(5, 5, 5, 5, 5), 0)
        copy(batch, others)
        assert found(root) == {(2, 2): "cd", (4, 1): "e"}
        copy(batch, [slow])
        assert found(root)[0, 2] == "ba"


def test_what_failed_is_in_no_receipt_and_holds_nothing_up(root, sets):
    with sets() as batch:
        one, other, *alone = batch.divide(infos(5, 5, 10), 0)
        batch.failed(one.key)
        batch.failed(one.key)  # another part of it
        copy(batch, [other])
        assert found(root) == {(0, 2): "b"}
        batch.failed(alone[0].key)
    assert found(root) == {(0, 2): "b"}
    assert batch.done == Totals(1, 5)


def test_a_receipt_that_could_not_be_written_is_written_at_the_end(root, sets):
    """A storage that fails for a while."""
    faulty = FaultyStore(root)
    faulty.add("upload", unavailable())
    with pytest.raises(RetryableError), sets(faulty) as batch:
        copy(batch, batch.divide(infos(10, 10), 0))
    assert found(root) == {(0, 1): "a"}


def test_what_an_earlier_attempt_has_copied_is_not_copied_again(root, sets):
    with sets() as batch:
        first, _, *others = batch.divide(infos(5, 5, 10), 0)
        copy(batch, [first, *others])
    with sets(receipts=find_receipts(root, PLACE, RUN)) as again:
        rest = list(again.divide(infos(5, 5, 10), 0))
        assert [info.key for info in rest] == ["b"]
        copy(again, rest)
    assert again.done == Totals(3, 20)
    assert found(root) == {(0, 2): "a", (1, 1): "b", (2, 1): "c"}


def test_other_runs_and_sources_are_told_apart(root, sets):
    with sets() as batch:
        copy(batch, batch.divide(infos(1), 0))
    assert len(find_receipts(root, PLACE)) == 1
    assert not find_receipts(root, PLACE, "f" * 16)
    assert not find_receipts(root, CopyPlace(Origin("s3://other/")))


def test_a_receipt_that_is_gone_has_no_rows(root, sets):
    with sets() as batch:
        copy(batch, batch.divide(infos(1, 10), 0))
    one, other = find_receipts(root, PLACE)
    root.delete(one.manifest.path)
    forget()
    (rows,) = receipt_rows(root, [one, other])
    assert rows.column("key").to_pylist() == ["b"]


def test_no_set_begins_while_one_is_written_and_another_is_full(root, sets):
    """Or copies that are faster than the disk would be repeated, however many, after a kill."""
    syncing, synced = threading.Event(), threading.Event()

    class Slow(DelegatingStore):
        def sync(self) -> None:
            syncing.set()
            assert synced.wait(30)
            super().sync()

    with sets(Slow(root)) as divided:
        divided._writing = writes = ToldLock()
        objects = divided.divide(infos(*[5] * 6), 0)
        first = [next(objects) for _ in "abc"]
        for info in first:
            divided.copied(copy_of(info))
        writing = threading.Thread(target=divided.write)
        writing.start()
        assert syncing.wait(30)
        begun: list[str] = []

        def take() -> None:
            for info in objects:
                begun.append(info.key)
                divided.copied(copy_of(info))

        taking = threading.Thread(target=take)
        taking.start()
        wait_until(lambda: writes.waited_for.is_set() or not taking.is_alive())
        assert begun == ["d"]
        synced.set()
        taking.join()
        writing.join()
    assert found(root) == {(0, 2): "ab", (2, 2): "cd", (4, 2): "ef"}
