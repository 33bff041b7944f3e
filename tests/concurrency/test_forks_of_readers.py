"""Processes that are forked at any moment, while threads of the parent read, read a batch and end.

`LARDER_FORKS=1000` forks 1,000 of each form in place of 10.
"""

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, png
from required import at_night

import larder
from larder.errors import ConfigError

FORKS = int(os.environ.get("LARDER_FORKS", "10"))
WATCHDOG_SECONDS = 100
IMAGES = {f"{'ab'[number % 2]}/{number:02}.png": png(number, 200, 200) for number in range(12)}


@contextmanager
def threads_that(*works: Callable[[], object]) -> Iterator[None]:
    """Do each work again and again, in a thread of its own."""
    over = threading.Event()
    errors: list[BaseException] = []

    def repeat(work: Callable[[], object]) -> None:
        try:
            while not over.is_set():
                work()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not errors


def forked(child: Callable[[], object]) -> int:
    """The status of a child."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            child()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
@pytest.mark.timeout(3600 if FORKS > 10 else 300)
@pytest.mark.parametrize(
    ("form", "workers"),
    [
        ("cache", 0),
        ("bucket", 0),
        *at_night(("cache", 2), ("shards", 0), ("shards", 2), ("kept", 0)),
    ],
)
def test_a_forked_child_reads_while_threads_of_the_parent_do(tmp_path, request, form, workers):
    decoded = {"cache": {"records": "decoded"}, "validate": "decode"}
    fields = decoded if form == "cache" else {"cache": None}
    lab = directory_lab(tmp_path, IMAGES, shards={"samples_per_shard": 4}, **fields)
    if form == "bucket":
        request.getfixturevalue("s3_env").create_bucket(bucket := f"forks-{os.getpid()}")
        lab = Lab(lab.source, f"s3://{bucket}", lab.output, lab.fields)
    lab.prepare()
    options: dict[str, Any] = {} if form == "cache" else {"decode": True, "size": 32}
    options["workers"] = workers
    if form == "kept":
        (tmp_path / "keep").mkdir()
        (tmp_path / "keep" / ("0" * 64)).write_bytes(b"of the user")
        options |= {"reading": larder.Reading(keep=tmp_path / "keep", keep_bytes="1 MB")}

    def opened() -> Any:
        return larder.open(f"{lab.storage}/larder/d").loader("train", batch_size=4, **options)

    def child() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout has another
        signal.alarm(WATCHDOG_SECONDS)
        for loader in (inherited, opened()):
            assert next(iter(loader))["key"] == expected
        with pytest.raises(ConfigError):
            next(iteration)
        gc.collect()

    inherited, training = opened(), opened()
    iteration = iter(opened())
    expected = next(iteration)["key"]
    with threads_that(lambda: list(training), lambda: list(opened())):
        for number in range(FORKS):
            assert forked(child) == 0, number
    assert sum(1 for _ in iteration) == 2
