"""A second copy of Pillow's Python modules, imported as ``larder.samples.pillow.Image`` and so on.

Pillow keeps settings in its modules, such as ``ImageFile.LOAD_TRUNCATED_IMAGES``, and any library
of the process may change them at any time. Only Larder changes the settings of the copy, in every
thread. The copy shares Pillow's compiled code and its files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import PIL
from PIL import UnidentifiedImageError, __version__, _plugins

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Image", "UnidentifiedImageError", "__version__", "_plugins"]

__path__ = PIL.__path__
