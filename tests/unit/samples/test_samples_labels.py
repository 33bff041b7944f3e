import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from larder.config.models.dataset import Labels
from larder.disk import twins
from larder.manifest.schemas import SAMPLE_ORDER
from larder.samples.labels import ClassTable, Labeller, class_looks, parse_label_file, permuted
from tests.support.errors import larder_error

PARTS = SAMPLE_ORDER.field("parts").type


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("a.jpg cat\nb.jpg dog\n", {"a.jpg": "cat", "b.jpg": "dog"}),
        ("a.jpg\tcat\nb.jpg\tgreat white shark", {"a.jpg": "cat", "b.jpg": "great white shark"}),
        ("a.jpg, cat\r\nb.jpg,dog\r\n\r\n  \r\n", {"a.jpg": "cat", "b.jpg": "dog"}),
        ("my cat, sitting.jpg 3\nb.jpg 4", {"my cat, sitting.jpg": "3", "b.jpg": "4"}),
        ('"a, b.jpg",cat\nc,"d,e"', {"a, b.jpg": "cat", "c": "d,e"}),
        ("  a.jpg   cat  \n\n", {"a.jpg": "cat"}),
        ("\ufeffa.jpg cat", {"a.jpg": "cat"}),
        ("a,x\ty\nb,z\tw", {"a,x": "y", "b,z": "w"}),
        ("a cat\na cat", {"a": "cat"}),
        (
            "ImageId,PredictionString\nval_1,n03995372 85 1 499 272\n"
            "val_2,n03481172 131 0 499 254 n03481172 1 2 3 4 \n",
            {"ImageId": "PredictionString", "val_1": "n03995372", "val_2": "n03481172"},
        ),
        ("", {}),
    ],
)
def test_label_files(text, labels):
    assert parse_label_file(text.encode(), "val.txt") == labels


@pytest.mark.parametrize(
    ("data", "where", "hint"),
    [
        (b"a cat\n\xff dog", "val.txt", "save it as UTF-8"),
        (b"a cat\nb\n", "val.txt, line 2", "write NAME CLASS"),
        (b"a,cat\nb,\n", "val.txt, line 2", "write NAME CLASS"),
        (b"a,cat,3\n", "val.txt, line 1", ""),
        (b"a cat\n\na dog\n", "val.txt, line 3", ""),
        (b'a,"cat\n', "val.txt, line 1", ""),
    ],
)
def test_invalid_label_files(data, where, hint):
    with larder_error("config.label", where) as caught:
        parse_label_file(data, "val.txt")
    assert hint in caught.value.hint


names = st.text("ab ,.é'", min_size=1, max_size=6).filter(lambda name: name == name.strip())


@given(st.dictionaries(names, st.sampled_from(["cat", "n01", "7"]), min_size=1))
def test_names_survive_tabs(labels):
    text = "".join(f"{name}\t{label}\n" for name, label in labels.items())
    assert parse_label_file(text.encode(), "x") == labels


def numbered(
    pinned: tuple[str, ...] | None,
    folders: list[str],
    tokens: list[str],
    known: tuple[str, ...] = (),
) -> tuple[tuple[str, ...], list[int]]:
    table = ClassTable(pinned, known)
    codes = [table.code(name, sample_key=f"{name}/x") for name in folders]
    codes += [table.code(token, sample_key="v", file="val.txt") for token in tokens]
    found = table.number()
    return found.classes, found.labels[codes].tolist()


@pytest.mark.parametrize(
    ("pinned", "folders", "tokens", "where"),
    [
        (("dog",), ["cat"], [], "cat/x"),
        (None, ["cat"], ["1"], "v"),
        (("b", "a"), [], ["a", "0"], "v"),
        (("b", "5"), [], ["0"], "v"),
        (("dog",), [], ["9" * 5_000], "v"),
    ],
)
def test_samples_of_unknown_classes_are_named(pinned, folders, tokens, where):
    with larder_error("config.label", where):
        numbered(pinned, folders, tokens)


def test_a_class_pinned_twice_is_named():
    with larder_error("config.label", "labels.classes"):
        ClassTable(("a", "b", "a"))


def label(labels: Labels, samples: dict[str, list[str]], file: bytes | None = None) -> list[str]:
    files = {} if file is None else dict.fromkeys(labels.files, file)
    labeller = Labeller(labels, ["train", "val"], files)
    parts = [
        [{"ext": "", "key": key, "size_bytes": 0, "etag": ""} for key in keys]
        for keys in samples.values()
    ]
    splits = np.array([1 if key.startswith("val") else 0 for key in samples], np.int16)
    codes = labeller.codes(splits, pa.array(list(samples)), pa.array(parts, PARTS))
    found = labeller.number()
    return [found.classes[number] for number in found.labels[codes]]


VAL = Labels(files={"val": "val.txt"})


@pytest.mark.parametrize(
    "name", ["val/1.seg.PNG", "val/1.JPEG", "1.JPEG", "1.seg.PNG", "val/1", "1"]
)
def test_a_label_file_may_name_a_sample_in_several_ways(name):
    samples = {"val/1": ["val/1.JPEG", "val/1.seg.PNG"]}
    assert label(VAL, samples, f"{name} cat\n".encode()) == ["cat"]


def test_the_most_specific_name_wins():
    samples = {"val/a/1": ["val/a/1.jpg"], "val/b/1": ["val/b/1.jpg"], "val/c/1": ["val/c/1.jpg"]}
    file = b"1 cat\n1.jpg dog\nval/b/1.jpg owl\nval/c/1 hen"
    assert label(VAL, samples, file) == ["dog", "owl", "hen"]


PATTERN = Labels.model_validate({"pattern": r"([a-z])\d$"})


@pytest.mark.parametrize(
    ("labels", "samples"),
    [
        (VAL, ["val/1", "val/2", "val/3"]),
        (VAL, ["val/1", "val/2"]),
        (Labels(), ["a/1", "2", "3"]),
        (PATTERN, ["a1", "2", "x/3"]),
    ],
)
def test_the_first_sample_without_a_label_is_named(labels, samples):
    with larder_error("config.label", samples[1]) as caught:
        label(labels, {key: [f"{key}.jpg"] for key in samples}, b"val/1 cat\n")
    counted = f"; 2 samples have no label: {', '.join(samples[1:])}"
    assert caught.value.message.endswith(counted) == (len(samples) > 2)


def test_a_pattern_finds_the_class_in_the_sample_key():
    samples = {key: [f"{key}.wav"] for key in ("a/dog_1", "b/dog_02", "cat_3", "x/ünï_4")}
    found = label(Labels.model_validate({"pattern": r"([^/]+)_\d+$"}), samples)
    assert found == ["dog", "dog", "cat", "ünï"]


@pytest.mark.parametrize("pattern", [r"(\d)$", r"(b)?/", r"(\d*)$"])
def test_a_sample_that_a_pattern_gives_no_class_is_named(pattern):
    with larder_error("config.label", "a/x"):
        label(Labels.model_validate({"from": "pattern", "pattern": pattern}), {"a/x": ["a/x.txt"]})


@pytest.mark.parametrize(
    "fields",
    [
        {"from": "pattern"},
        {"from": "folder", "pattern": "(.)"},
        *({"pattern": pattern} for pattern in ("abc", "(", 3)),
        {"from": True},
    ],
)
def test_labels_with_a_wrong_pattern_are_refused(fields):
    with pytest.raises(ValidationError):
        Labels.model_validate(fields)


BOTH = Labels(files={"train": "l.txt", "val": "l.txt"})


@pytest.mark.parametrize("line", ["0001.jpg", "0001"])
@pytest.mark.parametrize(
    "keys", [("cam1/0001", "cam2/0001"), ("0001", "cam2/0001"), ("train/0001", "val/0001")]
)
def test_a_line_that_fits_several_samples_is_refused(line, keys):
    with larder_error("config.label", "l.txt"):
        label(BOTH, {key: [f"{key}.jpg"] for key in keys}, f"{line} cat\n".encode())


def test_lines_by_keys_tell_samples_of_one_name_apart():
    file = b"cam1/0001.jpg cat\ncam2/0001 dog\n0002.jpg cat\n0001.jpg owl\n"
    keys = ("cam1/0001", "cam2/0001", "cam2/0002")
    assert label(BOTH, {key: [f"{key}.jpg"] for key in keys}, file) == ["cat", "dog", "cat"]


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
