"""The place from which GCS imports `Call`."""

from larder.store.calls import Call

__all__ = ["Call"]
