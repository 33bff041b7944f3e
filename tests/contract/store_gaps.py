"""Where a server does not keep the contract of stores: one row per known gap.

A row is checked too: the test fails where the server keeps the promise after all.
"""

GAPS: dict[tuple[str, str], str] = {
    ("file", "key /lead"): "a path cannot begin with a slash",
    ("file", "key trail/"): "a path cannot end in a slash",
    ("file", "key a//b"): "a path has no empty segments",
    ("file", "key a/./b"): "a path's . is the directory itself",
    ("file", "key a/../b"): "a path's .. is the parent directory",
    ("file", "key of 1,000 characters"): "a file name has 255 bytes at most",
    ("file", "keys pf and pf/child"): "a name is a file or a directory",
    ("rclone", "key /lead"): "keys are paths of files there: InvalidArgument",
    ("rclone", "key trail/"): "accepts it, and lists it without the slash",
    ("rclone", "key a//b"): "InvalidArgument",
    ("rclone", "key a/./b"): "InvalidArgument",
    ("rclone", "key a/../b"): "InvalidArgument",
    ("rclone", "key of 1,000 characters"): "a file name has 255 bytes at most",
    ("rclone", "keys pf and pf/child"): "a name is a file or a directory: 500",
    ("rclone", "put if absent"): "ignores If-None-Match and overwrites",
    ("rclone", "put if absent, eight at once"): "ignores If-None-Match and overwrites",
    ("radosgw", "delete if match"): "Ceph 16 ignores If-Match and deletes",
    ("rclone", "delete if match"): "ignores If-Match and deletes",
    ("rclone", "put if match"): "ignores If-Match and overwrites",
    ("rclone", "replacing, eight at once"): "ignores If-Match and overwrites",
    ("file", "content type and metadata"): "a file has neither",
    ("file", "headers"): "a file has none",
    ("gcs", "key a/../b"): "the emulator's own storage has paths: it closes the connection",
    ("gcs", "odd metadata"): "sends it as headers, which it then cannot be",
    ("gcs", "pages of 1,000 keys"): "ignores maxResults: one page has everything",
    ("gcs", "put if absent"): "ignores ifGenerationMatch and overwrites",
    ("gcs", "put if absent, eight at once"): "ignores ifGenerationMatch and overwrites",
    ("gcs", "copy of a listed state"): "ignores ifSourceGenerationMatch: copies what is there",
    ("gcs", "replacing, eight at once"): "ignores ifGenerationMatch: etags are compared before",
    ("gcs", "missing bucket, when reading"): "404 without a word: object.missing",
    ("moto", "checksum of a large stream"): "does not say that it is a checksum of checksums",
    ("moto", "copy of a listed state"): "ignores x-amz-copy-source-if-match",
    ("moto", "copy by etag"): "ignores x-amz-copy-source-if-match",
    ("radosgw", "copy of a listed state"): "ignores x-amz-copy-source-if-match",
    ("radosgw", "copy by etag"): "ignores x-amz-copy-source-if-match",
    ("rclone", "copy of a listed state"): "ignores x-amz-copy-source-if-match",
    ("rclone", "copy by etag"): "ignores x-amz-copy-source-if-match",
    ("rclone", "metadata of a copy"): "adds mtime",
    ("moto", "key with a newline"): "404 to the PUT",
    ("moto", "wrong secret"): "checks no signatures",
    ("radosgw", "wrong secret"): "with STS, AccessDenied to a request for an object",
}

RACES: dict[tuple[str, str], str] = {
    ("rclone", "new folder"): "of PUTs that make one new folder at once, some are answered 500",
    ("moto", "put if absent, eight at once"): "compares first, and then writes",
    ("moto", "replacing, eight at once"): "compares first, and then writes",
    ("rclone", "content after eight at once"): "a PUT that fails removes what others wrote",
}
"""What a server fails at now and then, and a test therefore does for it beforehand, or forgives.

No test can find that such a server keeps the promise after all.
"""
