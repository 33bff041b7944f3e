"""S3 and compatible servers: ``s3://bucket/prefix``.

`credentials` finds server and credentials, with botocore where the environment has none. A `bucket`
has them and the connections, and signs and sends requests, whose `answers` may be errors.
`listing` and `multipart` are made of them, and `store` offers them as a store.
"""

from larder.store.s3.store import S3Store

__all__ = ["S3Store"]
