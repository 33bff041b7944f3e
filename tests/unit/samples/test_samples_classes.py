"""Lines of label files that fit several samples, twins, and permuted classes."""

import numpy as np
import pyarrow as pa
import pytest

from larder.config.models.dataset import Labels
from larder.disk import twins
from larder.manifest.schemas import SAMPLE_ORDER
from larder.samples.labels import Labeller, class_looks, permuted
from tests.support.errors import larder_error

PARTS = SAMPLE_ORDER.field("parts").type
BOTH = Labels(files={"train": "l.txt", "val": "l.txt"})


def label(file: bytes, *keys: str) -> list[str]:
    """The classes of samples of one part; keys in ``val/`` are of another split."""
    labeller = Labeller(BOTH, ["train", "val"], {"train": file, "val": file})
    parts = [[{"ext": "jpg", "key": f"{key}.jpg", "size_bytes": 0, "etag": ""}] for key in keys]
    splits = np.array([key.startswith("val") for key in keys], np.int16)
    codes = labeller.codes(splits, pa.array(keys), pa.array(parts, PARTS))
    found = labeller.number()
    return [found.classes[number] for number in found.labels[codes]]


@pytest.mark.parametrize("line", ["0001.jpg", "0001"])
@pytest.mark.parametrize(
    "keys", [("cam1/0001", "cam2/0001"), ("0001", "cam2/0001"), ("train/0001", "val/0001")]
)
def test_a_line_that_fits_several_samples_is_refused(line, keys):
    with larder_error("config.label", "l.txt"):
        label(f"{line} cat\n".encode(), *keys)


def test_lines_by_keys_tell_samples_of_one_name_apart():
    file = b"cam1/0001.jpg cat\ncam2/0001 dog\n0002.jpg cat\n0001.jpg owl\n"
    assert label(file, "cam1/0001", "cam2/0001", "cam2/0002") == ["cat", "dog", "cat"]


@pytest.mark.parametrize(
    "other",
    ["Cat", " cat", "cat ", "cat\u00a0", "\u200bcat", "cat\t", "\ufeffcat", "ca\u2060t"],
)
def test_twins_of_a_name(other):
    assert twins(["cat", "dog", other], class_looks) == [("cat", other)]


@pytest.mark.parametrize("other", ["07", "007", "+7", "7.0", "7.", " 7"])
def test_twins_of_a_number(other):
    assert twins(["7", "70", "-7", other], class_looks) == [("7", other)]


def test_what_is_no_twin():
    names = ["icecream", "ice cream", "1.5", "15", "0", "00a", "10", "1", "-1", "a1", "a01", ""]
    assert twins(names, class_looks) == []


@pytest.mark.parametrize(
    ("classes", "moved"),
    [
        (("0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9"), 10),
        (("1", "0"), 2),
        (("1.0", "0.0"), 2),
        (("0", "2", "1"), 2),
        (("0", "1", "2"), 0),
        (("00", "01"), 0),
        (("1", "2"), 0),
        (("1", "cat", "0"), 0),
        ((), 0),
    ],
)
def test_classes_that_are_not_their_own_numbers(classes, moved):
    assert len(permuted(classes)) == moved
