"""A function for workers that needs TensorFlow, as augmentation may."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def sample(given: dict[str, Any], rng: Any) -> dict[str, Any]:
    return {"key": given["key"], "length": tf.strings.length(given["png"]).numpy()}
