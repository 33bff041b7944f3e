"""Finding the records of a file, whatever LMDB says of its values."""

import numpy as np
import pytest

from larder.cache.group import Groups, group_value
from tests.support.errors import larder_error

RECORDS = [b"first", b"second", b"3rd"]
VALUE = group_value(RECORDS, is_fixed=False)
MEMORY = np.frombuffer(b"before" + VALUE + b"after", np.uint8)


@pytest.mark.parametrize(
    ("begin", "length"),
    [(6, 1 << 40), (6, len(VALUE) + 6), (-1, len(VALUE)), (1 << 40, len(VALUE)), (6, 15), (6, 0)],
)
@pytest.mark.parametrize("record_bytes", [None, 100])
def test_a_group_that_is_not_in_the_file_is_damage(begin, length, record_bytes):
    groups = Groups(np.array([3]), MEMORY, lambda *_: (begin, length), record_bytes)
    with larder_error("damage.record", "record 1"):
        groups.places(np.array([1, 2]))
    with larder_error("damage.record", "record 1"):
        groups.record(1)


def test_the_places_of_a_group_are_looked_up_once():
    looked_up: list[int] = []

    def look_up(group: int, _: int) -> tuple[int, int]:
        looked_up.append(group)
        return 6, len(VALUE)

    groups = Groups(np.array([3, 6]), MEMORY, look_up, None)
    for numbers, wanted in (
        ([4, 2, 0], [b"second", b"3rd", b"first"]),
        ([5, 1], [b"3rd", b"second"]),
    ):
        places = groups.places(np.array(numbers))
        assert [bytes(record) for _, record in places.records()] == wanted
        assert [*map(groups.record, numbers)] == wanted
    assert sorted(looked_up) == [0, 1]
