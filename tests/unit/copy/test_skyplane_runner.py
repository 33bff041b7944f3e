import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from larder.copy.skyplane.runner import TransferRunner


@pytest.mark.parametrize("keys", [[], ["A", "a", "b b", "z\n", "é", "\U0001f600"]])
def test_of_many_objects_only_the_wanted_are_taken_that_have_content_and_a_place(tmp_path, keys):
    path = tmp_path / "keys"
    left = ["", "/x", "b/", "empty"]  # to the native engine
    path.write_text("".join(json.dumps(key) + "\n" for key in sorted([*keys, *left])))
    others = ["0", "aa", "b", "zz", "ê", "～", "\U0001f601"]
    take = TransferRunner({"keys": str(path)}, print)._filter("p/")
    found = [
        key
        for key in sorted({*keys[1:], *others, *left}, key=str.encode)
        if take(SimpleNamespace(key=f"p/{key}", size=key not in ("", "b/", "empty")))
    ]
    assert found == keys[1:]


@pytest.mark.parametrize(("name", "noticed"), [("prefetch", True), ("paramiko_loop", False)])
def test_only_errors_of_threads_that_skyplane_waits_for_end_the_transfer(
    name, noticed, monkeypatch
):
    runner = TransferRunner({}, print)
    logged: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", runner._lose)
    monkeypatch.setattr(threading, "__excepthook__", logged.append)

    def fail() -> None:
        raise ValueError("lost")

    fail.__name__ = name
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert [str(error) for error in runner._lost] == (["lost"] if noticed else [])
    assert len(logged) == (not noticed)
