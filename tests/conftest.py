"""Servers and an environment for all tests."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from required import all_required, need_system
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

import tests.support.memory  # noqa: F401 - registers memory://
from tests.support.gcs_emulator import GcsEmulator, gcs_emulator
from tests.support.servers import S3Server, moto_s3, radosgw, radosgw_available, rclone_s3

NO_RADOSGW = "Ceph's radosgw is not installed (.ci/install-radosgw installs it)"

# No test asserts a time. The same examples in every run; --hypothesis-profile=random tries others.
settings.register_profile("random", deadline=None)
settings.register_profile("larder", deadline=None, derandomize=True)
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=15)
settings.load_profile("larder" if all_required() else "quick")

EXHAUSTIVE = "exhaustive; set LARDER_REQUIRE=all to run it, as in CI"
PASSED = "larder/passed"
END_TO_END = "tests/e2e/"


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "leave out what passed in the last run and is the same with LARDER_REQUIRE=all"
    parser.addoption("--rest", action="store_true", help=text)


class _Passed:
    """Keeps which tests passed, for a run of the rest."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._tests.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if self._config.cache is not None:
            self._config.cache.set(PASSED, self._tests)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and not config.getoption("rest"):
        config.pluginmanager.register(_Passed(config))


def _leave_out_passed(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = set(config.cache.get(PASSED, [])) if config.cache is not None else set()
    rest: list[pytest.Item] = []
    same: list[pytest.Item] = []
    for item in items:
        # With everything installed, hypothesis tries more examples, and the S3 server is Ceph's.
        differs = item.get_closest_marker("hypothesis") or "s3_server" in getattr(
            item, "fixturenames", ()
        )
        (same if item.nodeid in passed and not differs else rest).append(item)
    items[:] = rest
    config.hook.pytest_deselected(items=same)


@pytest.hookimpl(trylast=True)  # after hypothesis has marked its tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes and is like tests that run, unless everything is required."""
    if config.getoption("rest"):
        _leave_out_passed(config, items)
    if all_required():
        return
    cases: Counter[str] = Counter()
    for item in items:
        if marker := item.get_closest_marker("exhaustive"):
            test = item.nodeid.partition("[")[0]
            cases[test] += 1
            if cases[test] > marker.kwargs.get("after", 0):
                item.add_marker(pytest.mark.skip(EXHAUSTIVE))


class _ByFile(LoadFileScheduling):
    """Files side by side, but all end-to-end tests in one process: they share a Prefect server.

    With everything required they take most of the time: then each process has a server.
    """

    def _split_scope(self, nodeid: str) -> str:
        shared = nodeid.startswith(END_TO_END) and not all_required()
        return END_TO_END if shared else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByFile:
    return _ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests' own keys and downloads, none of the user's, and no look at a cloud's metadata."""
    empty: Path = tmp_path_factory.mktemp("aws")
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("AWS_", "RCLONE_", "GOOGLE_", "CLOUDSDK_", "STORAGE_EMULATOR")):
                patch.delenv(name)
        for name, value in S3Server("none", "").environment.items():
            if name != "AWS_ENDPOINT_URL":
                patch.setenv(name, value)
        patch.setenv("AWS_CONFIG_FILE", str(empty / "config"))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(empty / "credentials"))
        patch.setenv("CLOUDSDK_CONFIG", str(empty / "gcloud"))
        patch.setenv("NO_GCE_CHECK", "true")
        patch.setenv("LARDER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _signals() -> None:
    """Commands that tests start hear signals, also where the tests run under nohup or as a job."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session")
def rclone_server() -> Iterator[S3Server]:
    """An rclone S3 server, for the whole session."""
    with rclone_s3() as server:
        yield server


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Server]:
    """A moto S3 server, for the whole session."""
    with moto_s3() as server:
        yield server


@pytest.fixture(scope="session")
def radosgw_server() -> Iterator[S3Server]:
    """Ceph's S3 server, for the whole session; only if everything is required."""
    need_system(radosgw_available(), NO_RADOSGW)
    with radosgw() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsEmulator]:
    """A server that imitates Google Cloud Storage, for the whole session."""
    with gcs_emulator() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest) -> S3Server:
    """The best S3 server: one that starts at once, or Ceph's if everything is required."""
    name = "radosgw_server" if all_required() else "rclone_server"
    server: S3Server = request.getfixturevalue(name)
    return server


@pytest.fixture
def s3_env(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The best S3 server, with the environment that leads clients and subprocesses to it."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server
