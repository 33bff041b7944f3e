"""The key of an object as two parts of a sample's name: what Larder does by the column."""

from __future__ import annotations

from dataclasses import dataclass

from larder.samples.naming import normalise_ext


@dataclass(frozen=True, slots=True)
class SampleName:
    """The two parts of an object's key."""

    sample_key: str
    ext: str


def split_key(key: str) -> SampleName:
    """Split the key of an object; `bad_key_reason` must be None.

    ``a/22.0/1.seg.PNG`` is part ``seg.png`` of sample ``a/22.0/1``.
    """
    directory, slash, basename = key.rpartition("/")
    stem, _, ext = basename.partition(".")
    return SampleName(sample_key=f"{directory}{slash}{stem}", ext=normalise_ext(ext))
