"""Where people see the numbers of classes: the plan, ``larder show`` and the data card."""

from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import DOCUMENT, directory_lab, images
from test_cards import built, page_of

import larder
from larder.catalog.show import show, show_lines
from larder.catalog.stored_dataset import StoredDataset
from larder.errors import ConfigError
from larder.pipeline.planning.plan_report import plan_lines
from tests.support.errors import larder_error

PLAIN = {"cache": None, "validate": "none"}
NUMBERS = [str(number) for number in range(12)]


def folders(names: list[str]) -> dict[str, bytes]:
    return {f"{name}/x.txt": name.encode() for name in names}


def messages(document: DOCUMENT, code: str) -> list[str]:
    return [each["message"] for each in document["warnings"] if each["code"] == code]


def as_text(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def test_all_classes_are_shown_with_their_numbers(tmp_path):
    lab = directory_lab(tmp_path, folders([*NUMBERS, "12"]), **PLAIN)
    plan = lab.plan()
    assert plan["classes"]["names"] == NUMBERS[:10]
    assert "13: 0 = 0, 1 = 1, 2 = 2," in as_text(plan_lines(plan))
    assert "9 = 9 and 3 more" in as_text(plan_lines(plan))
    assert messages(plan, "permuted_classes") == []
    document = built(lab)
    version = document["version"]
    shown = show_lines(show(StoredDataset("d", lab.settings().cluster), version))
    assert all(f"{name} = {name}" in as_text(shown) for name in [*NUMBERS, "12"])
    assert page_of(document).row("11")[:4] == ["11", "1", "1", "11"]


def test_published_numbers_in_another_order_are_warned_of(tmp_path):
    lab = directory_lab(tmp_path, folders([*NUMBERS[:2], *NUMBERS[3:]]), **PLAIN)
    lab.prepare()
    assert lab.newest().version.classes[2] == "3", "a gap: numeric order"
    lab.add(folders(["2"]))
    (message,) = messages(lab.plan(), "permuted_classes")
    assert "'3' is number 2" in message
    lab.prepare()
    assert lab.newest().version.classes == (*NUMBERS[:2], *NUMBERS[3:], "2")


def test_a_pinned_permutation_is_warned_of(tmp_path):
    labels = {"from": "folder", "classes": ["1", "0", "2"]}
    lab = directory_lab(tmp_path, folders(["0", "1", "2"]), **PLAIN, labels=labels)
    (message,) = messages(lab.plan(), "permuted_classes")
    assert "'1' is number 0" in message
    assert "'0' is number 1" in message
    lab.prepare()
    found = {sample.key: sample.label for sample in lab.only().samples["train"]}
    assert found == {"0/x": 1, "1/x": 0, "2/x": 2}


def test_numbers_among_names_are_warned_of(tmp_path):
    lab = directory_lab(tmp_path, folders(["ant", "bee", "1"]), **PLAIN)
    (message,) = messages(lab.plan(), "mixed_classes")
    assert all(name in message.replace(",", "").split() for name in ("1", "ant"))
    pinned = lab.plan(labels={"from": "folder", "classes": ["ant", "1", "bee"]})
    assert messages(pinned, "mixed_classes") == []


def test_classes_that_differ_by_space_are_warned_of(tmp_path):
    lab = directory_lab(tmp_path, folders(["cat", " cat", "cat ", "7", "007"]), **PLAIN)
    (message,) = messages(lab.plan(), "twin_classes")
    assert all(pair in message for pair in ("' cat' and 'cat'", "' cat' and 'cat '"))
    assert "'007' and '7'" in message
    with pytest.raises(ConfigError, match="space"):
        lab.plan(labels={"from": "folder", "classes": ["cat", "7", "007"]})


def test_a_line_of_a_label_file_that_fits_two_samples_is_refused(tmp_path):
    objects = {f"cam{at}/0001.txt": b"x" for at in (1, 2)} | {"l.list": b"0001.txt cat\n"}
    lab = directory_lab(tmp_path, objects, **PLAIN, labels={"files": {"train": "l.list"}})
    with pytest.raises(ConfigError, match="cam1/0001 and cam2/0001") as caught:
        lab.plan()
    assert (caught.value.code, caught.value.where) == ("config.label", "l.list")
    (Path(str(lab.source)) / "l.list").write_bytes(b"cam1/0001 cat\ncam2/0001 dog\n")
    assert lab.plan()["classes"]["names"] == ["cat", "dog"]


TABLES = {
    "pets": "abc",
    "more": "abcd",  # goes on where the first ends, as after growth
    "others": "bcd",
}


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    opened = {}
    for name, classes in [*TABLES.items(), ("plain", "xy")]:
        labels: Any = {} if name == "plain" else {"labels": {"from": "folder"}}
        cache = {"records": "decoded"} if name == "others" else None
        folder = tmp_path_factory.mktemp(name)
        fields = {"name": name, "splits": {"train": "**"}, "cache": cache}
        lab = directory_lab(folder, images(classes, 2), **{"labels": None, **labels, **fields})
        lab.prepare()
        opened[name] = larder.open(f"{lab.storage}/larder/{name}@latest")
    return opened


def mixed(versions, options, *names):
    loaders = [
        versions[name].loader("train", batch_size=2, **each)
        for name, each in zip(names, options, strict=True)
    ]
    return larder.mix([(loader, 1) for loader in loaders], by="sample")


def relabelled(label):
    return label + 1


@pytest.mark.parametrize("order", [("pets", "others"), ("others", "pets"), ("more", "others")])
@pytest.mark.parametrize("options", [{}, {"columns": ["key", "label"]}])
def test_two_tables_are_refused_by_name(versions, order, options):
    with larder_error("config.invalid_value", "loaders") as caught:
        mixed(versions, [options, options], *order)
    for name in order:
        assert f"{name}@{versions[name].version} train" in caught.value.message
    assert "label 0 is class" in caught.value.message
    assert "'a'" in caught.value.message
    assert "'b'" in caught.value.message


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (("pets", "more", "pets"), [{}, {}, {}]),
        (("pets", "plain"), [{}, {}]),
        (("pets", "others"), [{"columns": ["key"]}, {"columns": ["key"]}]),
        (("more", "others"), [{}, {"transforms": {"label": relabelled}}]),
    ],
)
def test_one_table_is_mixed(versions, names, options):
    mix = mixed(versions, options, *names)
    for batch in mix:
        classes = [key.partition("/")[0] for key in batch["key"]]
        for name, label in zip(classes, batch.get("label", classes), strict=True):
            assert label in (None, name, "abcd".find(name))
