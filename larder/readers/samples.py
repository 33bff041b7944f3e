"""A sample as training code gets it."""

from __future__ import annotations

from larder.samples.indexed import Sample as Sample
