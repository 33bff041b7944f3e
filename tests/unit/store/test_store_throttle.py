"""The limit on bytes per second: what counts, and who shares it."""

import pytest

from larder.config.models.copy_config import CopyConfig
from larder.config.models.locations import Location
from larder.store import open_location, throttle
from larder.store.throttle import share_bandwidth

RATE = 10**15
DATA = b"twelve bytes"


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """The rate and the size of what was asked for."""
    asked: list[tuple[float, int]] = []

    def take(bandwidth: throttle.Bandwidth, size_bytes: int) -> None:
        asked.append((bandwidth._rate, size_bytes))

    monkeypatch.setattr(throttle.Bandwidth, "take", take)
    return asked


def test_every_byte_counts_however_it_is_read_or_written(tmp_path, taken):
    limits = CopyConfig(max_bytes_per_second=RATE)
    store = open_location(Location(url=str(tmp_path / "store")), limits=limits)
    store.put("put", DATA)
    (tmp_path / "file").write_bytes(DATA)
    store.upload("upload", tmp_path / "file")
    with store.writer("writer") as writer:
        writer.write(DATA[:5])
        writer.write(DATA[5:])
        writer.commit()
    assert [size for _, size in taken] == [12, 12, 5, 7]
    taken.clear()
    assert store.get("put", offset=3) == DATA[3:]
    with store.open("writer") as reader:
        assert b"".join(reader) == DATA
    assert list(store.get_each([("put", 12, ""), ("upload", 12, "")])) == [DATA, DATA]
    assert sum(size for _, size in taken) == 9 + 12 + 24


def test_a_process_has_an_equal_share(tmp_path, taken):
    share_bandwidth(4)
    try:
        limits = CopyConfig(max_bytes_per_second=RATE)
        open_location(Location(url=str(tmp_path)), limits=limits).put("key", DATA)
    finally:
        share_bandwidth(1)
    assert taken == [(RATE / 4, 12)]
