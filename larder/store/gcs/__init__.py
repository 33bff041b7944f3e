"""Google Cloud Storage: ``gs://bucket/prefix``, through the JSON API.

`credentials` finds them, the server and the project. A `bucket` has them and the connections, and
sends requests, whose answers are `objects` or `errors`. `read` and `write` are the operations, and
`store` offers them as a store.
"""

from larder.store.gcs.store import GcsStore

__all__ = ["GcsStore"]
