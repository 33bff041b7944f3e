"""Records of work that were altered: nothing else is deleted or published, and nothing hangs.

Those are receipts, orders and plans of stopped runs, records and receipts of copies, tombstones,
leases and caches of functions. ``LARDER_HOSTILE`` is the number of examples, as of
`test_hostile_documents`, which tries what versions consist of.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from catalog_lab import cleaned, drop_all, grown
from copy_lab import CopyLab
from hypothesis import strategies as st
from pipeline_lab import Lab, memory_lab, objects_of, opened, write
from test_hostile_documents import (
    EXAMPLES,
    LOT,
    attempt,
    bounded,
    change_document,
    change_table,
    enclosed,
    in_lots,
    seal_again,
)
from test_pruning import pruned
from verify_lab import verified

import larder
from larder.errors import LarderError
from larder.store.delegate import DelegatingStore
from tests.faults.scenes import NEW, OBJECTS
from tests.support import memory
from tests.support.runs import between
from tests.support.stores import KeyStop, Stopped, StoppingStore

CALLS = 3_000
"""More than any of these operations makes; without documents that were altered, under 400."""
OLD = "b/01.txt"
OTHERS = {"users.txt": b"users", "larder/other/versions/1/version.json": b"{}", "_larders": b"u"}
"""Objects of others in the same bucket."""
FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "shards": {"bytes": 3_000},
    "cache": {"records": "encoded"},
    "validate": "none",
    "mirror": True,
}


@dataclass
class State:
    """Objects of two buckets, the keys of documents in them, and what reads those.

    ``check`` asserts what has to be there if an operation has succeeded.
    """

    buckets: dict[str, dict[str, Any]]
    documents: list[str]
    operations: dict[str, Callable[[], Any]]
    check: Callable[[str], object]


class Counted(DelegatingStore):
    """Raises after more calls than a run can need: instead of a clock, which finds hangs."""

    calls = 0

    def around(self, method: str, key: str, call: Callable[..., Any], **options: Any) -> Any:
        Counted.calls += 1
        assert Counted.calls < CALLS, f"{CALLS} calls, and no end: {method} {key}"
        return call(**options)


def state_of(name: str, pieces: tuple[str, ...], **more: Any) -> State:
    """The state of the buckets of a lab; documents are keys with one of some pieces."""
    with opened(f"memory://{name}") as store:
        for key, data in OTHERS.items():
            store.put(key, data)
    buckets = {each: dict(memory._BUCKETS[each].objects) for each in (name, f"{name}-source")}
    keys = [key for key in buckets[name] if key not in OTHERS]
    documents = sorted(key for key in keys if any(piece in key for piece in pieces))
    assert documents
    return State(buckets, documents, **more)


def objects_at(url: str) -> dict[str, bytes]:
    with opened(url) as store:
        return {info.key: bytes(store.get(info.key)) for page in store.list() for info in page}


def is_right(lab: Lab, wanted: dict[str, bytes]) -> None:
    """A version that is called intact has these bytes; readers refuse others."""
    with suppress(LarderError):
        assert verified(lab)["status"] != "intact" or objects_of(lab.newest()) == wanted


def stopped(name: str, folder: Path, *, growing: bool) -> State:
    """A first version, or one that grows, with everything but segment.json."""
    lab = memory_lab(folder, OBJECTS, name=name, **FIELDS)
    if growing:
        lab.prepare()
        lab.add(NEW)
        lab.remove(OLD)
    assert lab.stopped(KeyStop("segment.json")) is None
    wanted = objects_at(lab.source)

    def check(operation: str) -> None:
        if operation == "prepare":
            is_right(lab, wanted)

    operations = {
        "prepare": lab.prepare,
        "verify": lambda: verified(lab),
        "repair": lambda: verified(lab, repair=True),
        "clean": lambda: cleaned(lab, 1),
    }
    return state_of(name, ("work/", "leases/"), operations=operations, check=check)


def cleanable(name: str, folder: Path) -> State:
    lab = memory_lab(folder, OBJECTS, name=name, **FIELDS)
    grown(lab, 3)
    cleaned(lab, 1, "24h")
    wanted = objects_of(lab.newest())
    operations = {
        "clean": lambda: cleaned(lab, 1),
        "clean all": lambda: cleaned(lab, 1, mirror=True),
        "leases": lambda: drop_all(lab),
        "prepare": lab.prepare,
    }
    pieces = ("tombstones/", "leases/", "tags/", "work/mirror/", "conditions")

    def check(_: str) -> None:
        is_right(lab, wanted)

    return state_of(name, pieces, operations=operations, check=check)


def copied(name: str, _: Path) -> State:
    """A copy, and a second one that was stopped before its record."""
    lab = CopyLab(f"memory://{name}-source", f"memory://{name}", {})
    lab.add(OBJECTS)
    lab.copy()
    lab.add(NEW)
    lab.remove(OLD)
    with between(lambda store: StoppingStore(store, KeyStop("copy.json"))), suppress(Stopped):
        lab.copy()
    wanted = objects_at(lab.source)

    def check(_: str) -> None:
        there = {key: data for key, data in lab.there().items() if key not in (*OTHERS, OLD)}
        assert there == wanted

    operations = {"copy": lab.copy, "prune": lambda: pruned(lab, 2)}
    return state_of(name, ("_larder/copy/",), operations=operations, check=check)


def function(name: str, folder: Path) -> State:
    def read() -> None:
        options: Any = {"storage": f"memory://{name}", "cache_dir": folder / "copies"}
        with suppress(FileNotFoundError):
            shutil.rmtree(folder / "copies")
        train = larder.cache_train_dataset("d", "v1", **options)
        assert [*map(int, train(lambda: range(10))())] == [*range(10)]

    write(f"memory://{name}-source", {})
    read()
    return state_of(name, (".json",), operations={"read": read}, check=lambda _: None)


STATES = {
    "first": partial(stopped, growing=False),
    "grown": partial(stopped, growing=True),
    "clean": cleanable,
    "copy": copied,
    "function": function,
}
RAW = [b"", b"{", b"[" * 100_000, b'{"a":' * 50_000, b"NaN", b'{"format":NaN}', b"\xff\xfe"]
RAW += [b"0" * 9_999]
"""Documents that are none."""


def change(area: Path, files: dict[str, bytes], key: str, data: st.DataObject) -> None:
    """Alter a document; or put another one, or none, or no document in its place."""
    what = data.draw(st.integers(0, 9))
    if what == 0:
        files[key] = data.draw(st.sampled_from(RAW))
    elif what == 1:
        files[key] = files[data.draw(st.sampled_from(sorted(files)))]
    elif what == 2:
        raw = files[key]
        files[key] = raw[: data.draw(st.integers(0, len(raw)))]
    elif key.endswith(".parquet"):
        files[key] = change_table(area, files[key], data)
    elif key.endswith(".json"):
        plain = json.loads(files[key])
        sealed = "self_sha256" in plain
        for _ in range(data.draw(st.integers(1, 2))):
            change_document(area, plain, data)
        if sealed:
            seal_again(files, key, plain)
        else:
            with suppress(ValueError, UnicodeEncodeError):
                files[key] = json.dumps(plain).encode()
        if what == 3:  # a key twice
            files[key] = files[key].replace(b"{", b'{"format":"x",', 1)


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, State]]]:
    with enclosed(tmp_path_factory.mktemp("work")) as area, between():
        yield area, {name: make(f"hostile-{name}", area) for name, make in STATES.items()}
    for name in STATES:
        memory.forget(f"hostile-{name}")
        memory.forget(f"hostile-{name}-source")


@pytest.mark.push
@pytest.mark.timeout(24 * 3600 if EXAMPLES > 1_000 else 600)
def test_no_record_of_work_is_trusted(states):
    in_lots(partial(play, *states), min(LOT, EXAMPLES // 2))


def play(area: Path, states: dict[str, State], data: st.DataObject) -> None:
    state = states[data.draw(st.sampled_from(sorted(states)))]
    for name, objects in state.buckets.items():
        memory._BUCKETS[name].objects = dict(objects)
    name = next(iter(state.buckets))
    files = {key: state.buckets[name][key].data for key in state.documents}
    before = dict(files)
    keys = st.lists(st.sampled_from(state.documents), min_size=1, max_size=2, unique=True)
    for key in data.draw(keys):
        change(area, files, key, data)
    write(f"memory://{name}", {key: raw for key, raw in files.items() if raw != before[key]})
    operation = data.draw(st.sampled_from(sorted(state.operations)))
    done: list[bool] = []
    Counted.calls = 0
    with bounded(operation, area, wrap=Counted):
        attempt(lambda: (state.operations[operation](), done.append(True)))
    there = memory._BUCKETS[name].objects
    assert {key: there[key].data for key in OTHERS if key in there} == OTHERS
    source = f"{name}-source"
    assert memory._BUCKETS[source].objects.keys() == state.buckets[source].keys()
    if done:
        state.check(operation)
