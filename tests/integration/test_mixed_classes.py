"""A mix has one table of classes, or is refused."""

from typing import Any

import pytest
from pipeline_lab import directory_lab, images

import larder
from tests.support.errors import larder_error

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
