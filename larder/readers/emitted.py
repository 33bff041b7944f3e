"""Which version a job trains on, from the config that Larder emitted."""

from __future__ import annotations

import os
from typing import Final

from larder.readers.determined import emitted_location
from larder.readers.sagemaker import channel_location

VARIABLE: Final = "LARDER_LOCATION"
"""The location of the version, in the containers of jobs that are not Determined's."""


def job_location() -> str:
    """The location of the version; raises as `larder.readers.determined.emitted_location`."""
    return os.environ.get(VARIABLE) or channel_location() or emitted_location()
