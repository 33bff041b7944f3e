"""S3 and compatible servers: ``s3://bucket/prefix``.

`credentials` finds server and credentials, with botocore if the environment has none. `bucket` has
the connections, and signs and sends requests; `answers` parses their results. `multipart`
uses these, and `store` lists and combines all.
"""

from larder.store.s3.store import S3Store

__all__ = ["S3Store"]
