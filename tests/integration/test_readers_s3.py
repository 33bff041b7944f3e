"""Reading a version out of a bucket, as a training container does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from larder.cache.build import build_part
from larder.cache.schema import Field, Schema
from larder.store import open_store
from larder.testing.servers import S3Server
from larder.versions import layout
from larder.versions.documents import (
    CacheFacts,
    CachePart,
    SegmentUse,
    SplitFacts,
    VersionDocument,
    seal,
)

ID = "ab" * 16

READ = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        heavy = ("prefect", "pyarrow", "pydantic", "yaml", "boto3", "botocore", "PIL", "tensorflow")
        assert name.partition(".")[0] not in heavy, name

sys.meta_path.insert(0, Blocker())
import larder
data = larder.open(sys.argv[1])
print(data.shards("train"))
print(data.cache("train", verify=True).batch([2, 0])["x"].tolist())
"""


def test_a_bucket_is_read_with_the_base_packages_alone(s3_env: S3Server, tmp_path: Path) -> None:
    s3_env.create_bucket("readers")
    rows = ({"x": number} for number in range(3))
    path = tmp_path / "a.mdb"
    facts = build_part(rows, Schema((Field("x", "int64"),)), path, limit_bytes=1 << 20)
    part = CachePart("segments/s/cache/a.mdb", facts.bytes, facts.sha256, facts.digest, 3)
    version = VersionDocument(
        dataset="toy",
        id=ID,
        digest="d" * 64,
        inputs="1" * 64,
        segments=(SegmentUse("s"),),
        splits={"train": SplitFacts(3, 1, 10, ("segments/s/shards/train/t-000000.tar",))},
        classes=(),
        files=(),
        cache=CacheFacts("encoded", {"train": (part,)}),
    )
    url = "s3://readers/deep/larder/toy"
    store = open_store(url)
    try:
        store.upload(part.path, path)
        store.put(layout.version_key(ID), seal(version))
        store.put(layout.tag_key("latest"), seal({"version": ID}))
    finally:
        store.close()
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", READ, f"{url}@latest"],
            env={**os.environ, "LARDER_CACHE_DIR": str(tmp_path / "downloads")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            f"['{url}/segments/s/shards/train/t-000000.tar']",
            "[2, 0]",
        ]
    assert (tmp_path / "downloads" / f"{facts.sha256}.mdb").exists()
