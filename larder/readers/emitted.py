"""Location of the version that a job trains on, from the config that Larder emitted."""

from __future__ import annotations

import os
from typing import Final

from larder.readers.determined import emitted_location
from larder.readers.sagemaker import channel_location

VARIABLE: Final = "LARDER_LOCATION"
"""Variable with the version's location, in containers of jobs outside Determined."""


def job_location() -> str:
    """Return the version's location; errors as in `larder.readers.determined.emitted_location`."""
    return os.environ.get(VARIABLE) or channel_location() or emitted_location()
