"""PyTorch, TensorFlow and Keras read a version in `.venv-readers`, each in one process."""

import sys
from itertools import chain
from typing import Any

import pytest
from pipeline_lab import directory_lab, png
from required import read_with_frameworks

import larder
from tests.oracle.rows import FRAMEWORKS_FIXED
from tests.oracle.sets import prepare
from tests.support.errors import larder_error

FIELDS: dict[str, Any] = {
    "splits": {"train": "train/**", "plain": "plain/**", "sizes": "sizes/**", "lists": "lists/**"},
    "labels": {"from": "pattern", "pattern": r"/(?P<label>\d)-"},
    "cache": None,
    "validate": "header",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A version with 22 samples in train, of which most have a part json, and 9 in plain."""
    objects = {f"train/{n % 3}-{n:02}.png": png(n) for n in range(22)}
    texts = {n: b"[1]" if n in (6, 12) else b"{}" for n in range(22) if n not in (3, 10)}
    objects |= {f"train/{n % 3}-{n:02}.json": text for n, text in texts.items()}
    objects |= {f"plain/{n % 3}-{n:02}.png": png(n) for n in range(9)}
    objects |= {f"sizes/{n % 3}-{n:02}.png": png(n, width=9 + n) for n in range(9)}
    objects["sizes/2-08.json"] = b"{}"
    objects |= {f"lists/0-{n}.json": b"[1]" if n % 4 == 0 else b"{}" for n in range(8)}
    lab = directory_lab(tmp_path_factory.mktemp("lab"), objects, **FIELDS)
    lab.prepare()
    return f"{lab.storage}/larder/d@latest"


@pytest.fixture(scope="module")
def of_torch(address: str) -> Any:
    return read_with_frameworks("with_torch", address)


@pytest.fixture(scope="module")
def of_tensorflow(address: str) -> Any:
    return read_with_frameworks("with_tensorflow", address)


@pytest.mark.push
def test_rows_of_options_are_read_as_the_pages_say(tmp_path):
    for form in ("plain", "decoded"):  # where the frameworks are, none can be prepared
        prepare(tmp_path, form)
    differences = read_with_frameworks("with_rows", str(tmp_path))
    assert differences == [None] * len(FRAMEWORKS_FIXED)


def test_torch_has_the_same_batches_with_any_workers(of_torch, address):
    orders = of_torch["orders"]
    wanted = orders["wanted"]
    assert len(orders) == 6
    for name, epochs in orders.items():
        assert epochs == wanted, name
    assert wanted[0] != wanted[1]
    everything = sorted(sample.key for sample in larder.open(address).samples("train"))
    for epoch in wanted:
        assert sorted(chain(*epoch)) == everything


def test_torch_reads_samples_by_number(of_torch, address):
    numbered = of_torch["numbered"]
    keys = [sample.key for sample in larder.open(address).samples("train")]
    assert numbered["length"] == len(keys)
    assert numbered["last"] == keys[-1]
    assert numbered["without"] == ["image", "key", "label"]
    for method in ("fork", "forkserver", "spawn"):
        assert list(chain(*numbered[method])) == keys
    for index, (one, other) in numbered["indexes"].items():
        assert one == other, index
    assert numbered["indexes"]["True"][0] == "TypeError"
    assert numbered["indexes"]["22"][0] == "IndexError"
    assert numbered["indexes"]["slice(-2, None, None)"][0] == keys[-2:]
    batch = numbered["batch"]
    assert batch["image"] == ["torch.uint8", 3, 6, 6, 3]
    assert batch["label"] == ["torch.int64", 3]


def test_torch_gets_tensors(of_torch):
    batch = of_torch["batch"]
    assert batch["image"] == ["torch.uint8", 4, 6, 6, 3]
    assert batch["label"] == ["torch.int64", 4]
    assert len(batch["key"]) == 4


def test_tensors_of_functions_are_stacked(of_torch):
    assert of_torch["tensors"] == [["torch.bfloat16", 4, 2, 3]] * 2
    assert of_torch["failed"] == 2


def test_what_torch_cannot_go_on_with_is_refused(of_torch):
    lost = of_torch["refused"].pop(9)
    assert lost == "run.incomplete"
    assert of_torch["refused"] == ["config.invalid_value"] * 11


def test_the_training_process_counts_what_workers_of_torch_skip(of_torch):
    assert of_torch["skipped"] == [[2, 2], [4, 4]] * 3


def test_tensorflow_has_the_batches_of_the_loader(of_tensorflow):
    assert of_tensorflow["by_processes"] == of_tensorflow["wanted"]
    assert of_tensorflow["bytes"]


def test_the_element_spec_is_that_of_the_batches(of_tensorflow):
    text, labels = ["string", None], ["int64", None]
    assert of_tensorflow["spec"] == {"key": text, "label": labels, "png": text, "json": text}
    assert of_tensorflow["pictures"] == [["uint8", None, 6, 6, 3], labels]


def test_columns_that_tensorflow_cannot_have_are_refused(of_tensorflow):
    *columns, shape, part = of_tensorflow["refused"]
    assert columns == ["config.invalid_value columns"] * 3
    assert "columns: the values of 'key' have no one shape" in shape
    assert "columns: a batch has values of 'json'" in part


def test_tensorflow_has_what_a_function_makes(of_tensorflow):
    assert of_tensorflow["mapped"] == [["uint8", None, 6, 6, 3], ["int64", None]]


def test_tensorflow_knows_how_long_an_epoch_is(of_tensorflow):
    cardinality, length = of_tensorflow["cardinality"]
    assert cardinality == length


def test_a_strategy_of_tensorflow_does_not_divide_what_is_divided(of_tensorflow):
    assert of_tensorflow["policies"] == ["AUTO", "OFF"]


def test_tensorflow_begins_an_epoch_anew_that_was_left(of_tensorflow):
    first, _ = of_tensorflow["wanted"]
    assert of_tensorflow["validated"] == [first[:3], first[:3], first]


@pytest.mark.parametrize("framework", ["torch", "torch_samples", "tf", "keras"])
def test_a_framework_that_is_not_installed_is_named(framework, address, monkeypatch):
    for name in ("torch", "tensorflow", "keras"):
        monkeypatch.setitem(sys.modules, name, None)
    with larder_error("config.missing_package"):
        getattr(larder.open(address), framework)("train")
