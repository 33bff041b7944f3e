"""An error is one line that no key can colour, break or forge."""

import pickle

import pytest

from larder.errors import SHOWN_FAILURES, Failure, Failures, LarderError, ObjectError, printable


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("esc\x1b[31mred.jpg", r"esc\x1b[31mred.jpg"),
        ("new\nerror[config.secret]: forged.jpg", r"new\nerror[config.secret]: forged.jpg"),
        ("back\rover.jpg", r"back\rover.jpg"),
        ("c1\x9b31m.jpg", r"c1\x9b31m.jpg"),
        ("line\u2028separator.jpg", r"line\u2028separator.jpg"),
        ("turned\u202egpj.exe", r"turned\u202egpj.exe"),
        ("two  spaces.jpg", "two  spaces.jpg"),
        ("日本語\u3000übung.jpg", "日本語\u3000übung.jpg"),
    ],
)
def test_a_key_is_shown_on_one_line_without_control_characters(key, shown):
    error = ObjectError("object.missing", "it is not there", where=key, hint="look again")
    assert str(error) == f"{shown}: it is not there; look again"
    assert Failure.of(key, error).line == str(error)
    assert Failure(key, "config.bad_key", "no part").line == f"{shown}: no part"
    assert printable(key) == shown
    assert error.where == key, "what a program reads is the key itself"


def test_the_lines_of_another_program_become_one():
    error = LarderError("store.refused", "it says:\n\n  no \x1b[1mway\t", hint="see\nthere")
    assert str(error) == r"it says: no \x1b[1mway; see there"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def failures(first: int, last: int) -> list[Failure]:
    return [Failure(f"{number}", "object.missing", "") for number in range(first, last)]


def test_the_first_are_kept_and_all_are_counted():
    counted = Failures()
    counted.add(*failures(0, 2))
    assert (counted.count, counted.room) == (2, SHOWN_FAILURES - 2)
    counted.add_counted(iter(failures(2, 5)), 10)
    assert (counted.count, counted.shown) == (12, failures(0, 5))
    counted.add(*failures(5, SHOWN_FAILURES + 5))
    assert (counted.count, counted.room) == (SHOWN_FAILURES + 12, 0)
    assert counted.shown == failures(0, SHOWN_FAILURES)
