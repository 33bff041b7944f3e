"""Google Cloud Storage: ``gs://bucket/prefix``, through the JSON API.

A `bucket` has the credentials and the connections, and sends requests; its `answers` are objects or
errors. `write` is how objects are written and copied, and `store` offers that as a store, with
listing and reading.
"""

from larder.store.gcs.store import GcsStore

__all__ = ["GcsStore"]
