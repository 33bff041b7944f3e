"""Google Cloud Storage: ``gs://bucket/prefix``, through the JSON API.

`settings` finds server, credentials and project; a `client` holds the connections of an account,
and a `bucket` sends requests, whose answers are `objects` or `errors`. `read`, `write` and
`rewrite` are the operations, and `store` offers them as a store.
"""

from larder.store.gcs.store import GcsStore

__all__ = ["GcsStore"]
