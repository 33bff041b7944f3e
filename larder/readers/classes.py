"""Classes of mixed loaders, whose numbers are the labels of a batch."""

from __future__ import annotations

from collections.abc import Sequence

from larder.readers.batches import LABEL, Decoding
from larder.readers.loader import Loader
from larder.readers.schedule import invalid

_HINT = (
    "prepare both datasets with the same `classes` in `labels`, make the numbers the same with"
    " transforms={'label': FUNCTION}, or leave the label out with columns="
)


def check_same_classes(loaders: Sequence[Loader]) -> None:
    """Refuse to mix loaders if a label stands for different classes in their batches.

    One table may be longer than another, as after growth.

    Raises:
        ConfigError: ``config.invalid_value`` names both datasets, the label and its classes.
    """
    labelled = [loader for loader in loaders if _has_own_labels(loader)]
    longest = max(labelled, key=lambda loader: len(loader.parts.index.classes), default=None)
    for loader in labelled:
        assert longest is not None, "there is one"
        tables = loader.parts.index.classes, longest.parts.index.classes
        for number, (one, other) in enumerate(zip(*tables, strict=False)):
            if one != other:
                names = loader.parts.schedule.name, longest.parts.schedule.name
                message = (
                    f"label {number} is class {one!r} in {names[0]}, and {other!r} in {names[1]}"
                )
                raise invalid(message, "loaders", _HINT)


def _has_own_labels(loader: Loader) -> bool:
    """Whether batches have labels that are the version's own class numbers."""
    decoding = loader.parts.decode
    classes = getattr(loader.parts.index, "classes", ())
    if not classes or not isinstance(decoding, Decoding):
        return bool(classes)
    return LABEL in (decoding.columns or (LABEL,)) and LABEL not in decoding.transforms
