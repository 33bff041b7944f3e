"""The three readers by number take the same indexes, and refuse the same."""

import pytest
from pipeline_lab import directory_lab, png
from required import read_with_frameworks

REFUSED = {"5": "IndexError", "-6": "IndexError", "True": "TypeError", "1.0": "TypeError"}


@pytest.mark.push
def test_the_three_readers_by_number_agree(tmp_path):
    objects = {f"a/{number}.png": png(number) for number in range(5)}
    lab = directory_lab(tmp_path, objects, splits={"train": "**"})
    lab.prepare()
    read = read_with_frameworks("with_numbers", f"{lab.storage}/larder/d@latest")
    assert len(read) >= 29
    for index, results in read.items():
        assert results == results[:1] * 3, index
    assert {index: read[index][0].partition(":")[0] for index in REFUSED} == REFUSED
    keys = [read[f"{number}"][0] for number in (0, -1)]
    assert read["[0, -1]"][0] == read["tensors"][0] == keys
    assert read["tensor"][0] == keys[1]
    assert len(read["slice(-2, None, None)"][0]) == 2
