"""Servers and an environment for all tests."""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from required import all_required, need_system, nightly, unchanged

import tests.support.memory  # noqa: F401 - registers memory://
from tests.support.gcs_emulator import GcsEmulator, gcs_emulator
from tests.support.servers import S3Server, moto_s3, radosgw, radosgw_available, rclone_s3

NO_RADOSGW = "Ceph's radosgw is not installed (.ci/install-radosgw installs it)"

# A push tries the same examples each time; a night tries others.
settings.register_profile("nightly", deadline=None)
settings.register_profile("push", deadline=None, derandomize=True, max_examples=15)
settings.load_profile("nightly" if nightly() else "push")

CONCURRENCY = "tests/concurrency/"
PUSH = "runs at a push; set LARDER_REQUIRE=all to run it"
NIGHTLY = "runs at night; set LARDER_REQUIRE=nightly to run it"
UNCHANGED = "the folders that it tests are as they were before the push"
PASSED = "larder/passed"


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "leave out what passed in the last run"
    parser.addoption("--rest", action="store_true", help=text)
    text = "run the files, and the tests of each file, in the random order of a seed"
    parser.addoption("--random-order", type=int, metavar="SEED", help=text)


class _Passed:
    """Keeps which tests passed, for a run of the rest."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._tests.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._config.cache.set(PASSED, self._tests)


def pytest_configure(config: pytest.Config) -> None:
    keeps = config.pluginmanager.hasplugin("cacheprovider")
    if keeps and not hasattr(config, "workerinput") and not config.getoption("rest"):
        config.pluginmanager.register(_Passed(config))


def _leave_out_passed(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = set(config.cache.get(PASSED, [])) if config.cache is not None else set()
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


def _reason_to_skip(item: pytest.Item) -> str | None:
    """Why a test does not run at this level; None if it runs."""
    file = item.nodeid.partition("::")[0]
    if item.get_closest_marker("nightly") and not nightly():
        return NIGHTLY
    if not all_required():
        waits = item.get_closest_marker("push") or file.startswith(CONCURRENCY)
        return PUSH if waits else None
    return UNCHANGED if file in unchanged() else None


def _shuffle(items: list[pytest.Item], seed: int) -> None:
    chance, places = random.Random(seed), dict[Path, float]()
    items.sort(key=lambda item: (places.setdefault(item.path, chance.random()), chance.random()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of a higher level, and shuffle those that run."""
    for item in items:
        if reason := _reason_to_skip(item):
            item.add_marker(pytest.mark.skip(reason))
    if config.getoption("rest"):
        _leave_out_passed(config, items)
    if config.getoption("random_order") is not None:
        _shuffle(items, config.getoption("random_order"))


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
    with rclone_s3() as server:
        yield server


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Server]:
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
