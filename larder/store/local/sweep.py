"""Removes what killed processes left in the directories that this process writes to.

A directory is searched once per process, when something is first written there. So the whole
storage never has to be walked, and a run that continues finds the drafts of the objects that it
writes again.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

from larder.temporary import sweep_drafts

_MOST_FOLDERS = 4096

_swept: OrderedDict[bytes, None] = OrderedDict()
_lock = threading.Lock()


def sweep_once(folder: bytes, handle: int) -> None:
    """Remove the abandoned drafts in a directory, unless that was done recently.

    The file of ``handle`` was just created there, for the current time.
    """
    with _lock:
        known = folder in _swept
        _swept[folder] = None
        _swept.move_to_end(folder)
        if len(_swept) > _MOST_FOLDERS:
            _swept.popitem(last=False)
    if not known:
        sweep_drafts(folder, os.fstat(handle).st_ctime)
