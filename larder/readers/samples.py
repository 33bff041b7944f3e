"""The sample type for training code."""

from __future__ import annotations

from larder.samples.indexed import Sample as Sample
