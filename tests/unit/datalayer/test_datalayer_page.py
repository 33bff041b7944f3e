"""docs/how-to/caching-functions.md: its examples, and the tests that it names."""

import re
import runpy
from dataclasses import fields
from pathlib import Path

import larder
from larder.datalayer.elements import STRINGS, VIEWED, Leaf
from larder.datalayer.layer_cache import FORMAT, LayerCache, LayerFile

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/caching-functions.md").read_text()


def test_the_example_without_tensorflow(tmp_path):
    _, example = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "example.py"
    path.write_text(f"import larder\nimport numpy as np\n{example}")
    names = runpy.run_path(str(path))
    assert names["batch"]["wave"].shape == (1000 % 64, 16)
    assert names["state"]["epoch"] == 1
    decorate = larder.cache_train_dataset(
        "waves", "v1", shuffle=True, batch_size=64, state=names["state"]
    )
    assert next(iter(decorate(list)()))["label"].shape == (64,)


def test_every_test_that_is_named_exists():
    written = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    held = re.findall(r"^\|(?!.*yogadl).*?\|(.*)\|$", PAGE.partition("What the tests")[2], re.M)
    names = re.findall(r"`(test_\w+)`", "".join(held))
    assert len(names) > 20
    assert [name for name in names if f"def {name}(" not in written] == []
    for path in re.findall(r"`(\w+/\S+\.py)`", PAGE):
        assert (ROOT / "tests" / path).is_file(), path


def test_every_field_of_the_document_is_in_the_reference():
    page = (ROOT / "docs/reference/formats.md").read_text()
    section = page.partition("### Caches of functions")[2].partition("### ")[0]
    for kind in (LayerCache, LayerFile, Leaf):
        for field in fields(kind):
            assert f"`{field.name}`" in section
    assert [name for name in (FORMAT, *VIEWED, *STRINGS) if f"`{name}`" not in section] == []
