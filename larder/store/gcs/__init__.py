"""Google Cloud Storage: ``gs://bucket/prefix``, through the JSON API.

`credentials` finds them, the server and the project. A `bucket` has them and the connections, and
sends requests; its `answers` are objects or errors. `write` is how objects are written and copied,
and `store` offers that as a store, with listing and reading.
"""

from larder.store.gcs.store import GcsStore

__all__ = ["GcsStore"]
