"""Files of tests/golden: texts that must not change by accident."""

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"


def check_golden(name: str, text: str) -> None:
    """Compare a text with its golden file, or write it there if LARDER_WRITE_GOLDEN is set."""
    path = FOLDER / name
    if os.environ.get("LARDER_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
