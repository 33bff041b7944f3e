"""Tests of the failures that are counted, of which the first are kept."""

from __future__ import annotations

from larder.errors import SHOWN_FAILURES, Failure, Failures


def failures(first: int, last: int) -> list[Failure]:
    return [Failure(f"{number}", "object.missing", "") for number in range(first, last)]


def test_the_first_are_kept_and_all_are_counted() -> None:
    found = Failures()
    found.add(*failures(0, 2))
    assert (found.count, found.room) == (2, SHOWN_FAILURES - 2)
    found.add_counted(iter(failures(2, 5)), 10)
    assert (found.count, found.shown) == (12, failures(0, 5))
    found.add(*failures(5, SHOWN_FAILURES + 5))
    assert (found.count, found.room) == (SHOWN_FAILURES + 12, 0)
    assert found.shown == failures(0, SHOWN_FAILURES)


def test_no_more_are_asked_for_than_there_is_room_for() -> None:
    found = Failures()
    found.add(*failures(0, SHOWN_FAILURES - 1))
    others = iter(failures(SHOWN_FAILURES - 1, SHOWN_FAILURES + 2))
    found.add_counted(others, 3)
    assert len(list(others)) == 2
    assert found.count == SHOWN_FAILURES + 2
