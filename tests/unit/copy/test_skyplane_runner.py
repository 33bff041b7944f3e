import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from larder.copy.skyplane.runner import TransferRunner


class Lab:
    def __init__(self, **request: Any) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.runner = TransferRunner(request, self.emit)

    def emit(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def taken(self, prefix: str, *objects: tuple[str, int]) -> list[str]:
        take = self.runner._filter(prefix)
        listed = [SimpleNamespace(key=prefix + key, size=size) for key, size in objects]
        return [found.key[len(prefix) :] for found in listed if take(found)]


def written(path: Path, keys: list[str]) -> str:
    path.write_text("".join(json.dumps(key) + "\n" for key in keys))
    return str(path)


def test_empty_and_misplaced_objects_are_left_to_the_native_engine(tmp_path):
    objects = [("", 0), ("/x", 1), ("a", 1), ("b/", 0), ("c//d", 1), ("empty", 0)]
    lab = Lab(keys=written(tmp_path / "keys", [key for key, _ in objects]))
    assert lab.taken("p/", *objects) == ["a", "c//d"]


def test_of_many_objects_only_the_wanted_are_taken(tmp_path):
    keys = ["A", "a", "b b", "z\n", "é", "\U0001f600"]
    listed = sorted({*keys, "0", "aa", "b", "zz", "ê", "～", "\U0001f601"} - {"A"}, key=str.encode)
    lab = Lab(keys=written(tmp_path / "keys", keys))
    assert lab.taken("p/", *[(key, 1) for key in listed]) == keys[1:]


def test_no_wanted_key_takes_nothing(tmp_path):
    (tmp_path / "keys").write_text("")
    assert Lab(keys=str(tmp_path / "keys")).taken("", ("a", 1)) == []


@pytest.mark.parametrize(("name", "noticed"), [("prefetch", True), ("paramiko_loop", False)])
def test_only_errors_of_threads_that_skyplane_waits_for_end_the_transfer(
    name, noticed, monkeypatch
):
    lab = Lab()
    logged: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lab.runner._lose)
    monkeypatch.setattr(threading, "__excepthook__", logged.append)

    def fail() -> None:
        raise ValueError("lost")

    fail.__name__ = name
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert [str(error) for error in lab.runner._lost] == (["lost"] if noticed else [])
    assert len(logged) == (not noticed)
