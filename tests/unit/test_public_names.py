"""The names of the package ``larder``, and what importing it costs."""

import subprocess
import sys
from pathlib import Path

import pytest

import larder
from larder import errors

PAGE = Path(__file__).parents[2] / "docs/how-to/read-in-training.md"
NAMES = {
    *("Batches", "Choice", "Images", "LarderError", "Reading", "Shuffle", "__version__"),
    *("cache_train_dataset", "cache_validation_dataset", "errors", "mix", "open", "prepare"),
}


def test_the_public_names_are_these():
    assert set(larder.__all__) == NAMES
    for name in NAMES:
        assert getattr(larder, name) is not None


def test_every_error_can_be_caught_with_nothing_but_larder_imported(tmp_path):
    code = f"""
import sys, larder
assert not {{"larder.errors", "larder.readers", "numpy", "importlib.metadata"}} & {{*sys.modules}}
try:
    larder.open({str(tmp_path / "nothing")!r})
except larder.errors.ConfigError as error:
    assert isinstance(error, larder.LarderError) and larder.LarderError.__name__ == "LarderError"
    print(error.code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("config.invalid_value\n", "")


@pytest.mark.parametrize("name", ["LarderError", "errors.RetryableError", "errors.DamageError"])
def test_the_page_names_what_training_catches(name):
    assert f"`larder.{name}`" in PAGE.read_text()
    assert issubclass(getattr(errors, name.rpartition(".")[2]), larder.LarderError)
