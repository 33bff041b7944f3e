"""Roles of the shipped policies: the methods of a store that each calls, and their permissions."""

from larder.store import permissions

_PARTS = ("s3:PutObject", "s3:AbortMultipartUpload")
_S3, _GS = permissions.ACTIONS["s3"], permissions.ACTIONS["gs"]

ACTIONS = {
    "s3": {
        **_S3,
        **dict.fromkeys(("head", "open"), _S3["get"]),
        **dict.fromkeys(("upload", "writer", "copy_from"), _PARTS),
        "begin_upload": (*_PARTS, "s3:ListMultipartUploadParts"),
        "abort_uploads": ("s3:ListBucketMultipartUploads", "s3:AbortMultipartUpload"),
        "commit": _S3["put"],
        "abort": ("s3:AbortMultipartUpload",),
        "region": (),
    },
    "gs": {
        **_GS,
        **dict.fromkeys(("head", "open"), _GS["get"]),
        **dict.fromkeys(("upload", "writer", "begin_upload", "commit", "copy_from"), _GS["put"]),
        **dict.fromkeys(("abort_uploads", "abort", "region"), ()),
    },
}
"""Permissions of all methods of a store or its writers. A copy also has to read the source."""

ROLES = {
    "source-reader": ("list", "head", "open", "get"),
    "storage-writer": tuple(ACTIONS["s3"]),
    "trainer": ("list", "head", "open", "get"),
}
