"""The pages list the forms of a sample and the values of segments and shards in the code."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = "\n".join(path.read_text() for path in sorted(ROOT.glob("larder/**/*.py")))
FORMS = (ROOT / "docs/design/003-the-way-of-a-key.md").read_text()
GLOSSARY = (ROOT / "docs/reference/glossary.md").read_text()


def section(page: str, heading: str) -> str:
    return page.split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]


def test_every_table_of_packed_samples_is_listed():
    tables = re.findall(r"^([A-Z]\w*) = packed_columns\(", CODE, re.MULTILINE)
    listed = section(FORMS, "## The eight forms of a sample")
    assert len(tables) > 5
    assert set(tables) <= set(re.findall(r"`(\w+)`", listed))


def test_every_listed_value_is_a_class():
    listed = section(GLOSSARY, "### Segments and shards in the code")
    values = re.findall(r"`([A-Z]\w+)`", listed)
    assert len(values) > 10
    assert set(values) <= set(re.findall(r"^class (\w+)", CODE, re.MULTILINE))
