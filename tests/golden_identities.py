"""tests/golden/identities.json: identities that must not change, because prefixes bear them.

So must the orders of samples not change, which training that is resumed goes on with.
``LARDER_WRITE_GOLDEN=1`` rewrites it. A changed identity makes every team pack that data again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden" / "identities.json"


def assert_golden(section: str, found: dict[str, Any]) -> None:
    """Compare one section of the file, all of it, or rewrite it."""
    golden = json.loads(GOLDEN.read_text())
    if os.environ.get("LARDER_WRITE_GOLDEN"):
        golden[section] = found
        GOLDEN.write_text(json.dumps(golden, indent=2, sort_keys=True) + "\n")
    assert found == golden[section]
