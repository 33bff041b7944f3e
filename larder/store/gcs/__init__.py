"""Google Cloud Storage: ``gs://bucket/prefix``, through the JSON API.

`bucket` has the credentials and the connections, and sends requests; `answers` parses their
results. `write` writes and copies objects. `store` combines them with listing and reading.
"""

from larder.store.gcs.store import GcsStore

__all__ = ["GcsStore"]
