import re
from pathlib import Path

import pytest
from required import GROUPS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PATHS = ["CONTRIBUTING.md", "docs/promises.md", "docs/where-to-add.md"]
"""Pages that name files of the repository."""


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_a_target(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not re.match(r"https?:", link):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.is_file(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PATHS)
def test_files_that_are_named_exist(page):
    text = (ROOT / page).read_text()
    named = re.findall(r"\b(?:larder|tasks|flows|tests|configs|docs)/[\w./-]*\w", text)
    assert named
    for path in named:
        if "NAME" not in path:
            assert (ROOT / path).exists(), path


def test_what_holds_a_promise_runs_at_every_push():
    named = re.findall(r"tests/[\w/]+\.py", (ROOT / "docs/promises.md").read_text())
    assert not {path for group in GROUPS for path in group.tests}.intersection(named)
    for path in named:
        text = (ROOT / path).read_text()
        assert not re.search(r"^pytestmark = [^(]*mark\.nightly", text, re.MULTILINE), path
        assert text.count("\n@pytest.mark.nightly\n") < text.count("\ndef test_"), path
