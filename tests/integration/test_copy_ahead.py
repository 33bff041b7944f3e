"""What goes before the batches of a copy: what it leaves, and what it costs if it fails.

Skyplane itself needs clouds, or the test of its own: here something else is in its place.
"""

import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from copy_lab import CopyLab, buckets
from pipeline_lab import opened, write

from larder.copy import route
from larder.copy.skyplane import adapter
from larder.copy.skyplane.adapter import TransferResult
from larder.copy.skyplane.engine_choice import CopyEnd, EngineChoice
from larder.errors import ConfigError
from larder.pipeline.preparing import prepare
from tests.support.runs import between, run_settings

FAILED = TransferResult(done=False, sent=True, message="Skyplane failed after 5 s: it broke")
EAST, WEST = "source.region=us-east-1", "storage.region=us-west-2"


@pytest.fixture
def instead(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., TransferResult]], None]:
    """Have something run instead of Skyplane."""

    def replace_by(run: Callable[..., TransferResult]) -> None:
        monkeypatch.setattr(
            route, "choose_engine", lambda *_, **__: EngineChoice("skyplane", "a test")
        )
        monkeypatch.setattr(adapter, "check_skyplane", lambda *_, **__: None)
        monkeypatch.setattr(adapter, "transfer", run)

    return replace_by


@pytest.mark.parametrize(
    ("limit", "sent", "stopped"), [(50, True, True), (50, False, False), (None, True, False)]
)
def test_what_was_sent_in_vain_counts_against_the_limit(instead, limit, sent, stopped):
    name = f"again-{uuid.uuid4().hex[:8]}"
    write(f"memory://{name}-source", {"a": b"1" * 1000})
    lab = CopyLab(f"s3://memory-{name}-source", f"s3://memory-{name}", {})
    instead(lambda *_, **__: replace(FAILED, sent=sent))
    with between():
        options = {"settings": [EAST, WEST, *([f"copy.max_cost_usd={limit}"] if limit else [])]}
        if not stopped:
            assert lab.copy(**options)["copied"]["count"] == 1
            return
        with pytest.raises(ConfigError) as caught:
            lab.copy(**options)
        error = caught.value
        assert error.code == "config.cost_limit"
        assert error.message == f"{FAILED.message}; what it has sent counts against max_cost_usd"
        assert "run again" in error.hint
        with opened(f"memory://{name}") as store:
            assert [i.key for page in store.list() for i in page if i.key == "a"] == []


def test_a_run_of_a_dataset_says_that_it_failed(tmp_path, instead):
    write(tmp_path / "source", {f"a/{number}.txt": b"x" for number in range(5)})
    instead(lambda *_, **__: FAILED)
    asked = run_settings(tmp_path / "source", tmp_path / "storage", tmp_path / "out", mirror=True)
    done = prepare(asked)
    assert done["copied"]["count"] == 5
    (warning,) = [each for each in done["warnings"] if each["code"] == "skyplane"]
    assert warning["message"] == f"{FAILED.message}; the native engine copies what is missing"


@pytest.mark.parametrize("done", [True, False])
def test_what_goes_ahead_is_not_trusted(instead, done):
    objects = {f"a/{number}": bytes([number]) * 1000 * number for number in range(1, 9)}
    asked: list[str] = []

    def run(source: CopyEnd, target: CopyEnd, keys: Iterable[str], **_: Any) -> TransferResult:
        asked.extend(keys)
        store: Any = target.store
        first, second, third, *_ = objects
        with source.store.open(first) as reader:
            store.put(first, b"".join(reader), like=reader.info)
        store.put(second, bytes(len(objects[second])))
        store.put(third, b"")
        return replace(FAILED, done=done)

    instead(run)
    with buckets(objects) as lab:
        document = lab.copy()
        assert asked == sorted(objects)
        assert document["copied"]["count"] == len(objects)
        assert lab.there() == objects
    messages = [warning["message"] for warning in document["warnings"]]
    expected = f"{FAILED.message}; the native engine copies what is missing"
    assert messages == ([] if done else [expected])
