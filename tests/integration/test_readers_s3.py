"""Reading a version out of a bucket, as a training container does."""

import os
import subprocess
import sys

from reading_lab import LIGHT, publish_toy

READ = """
import larder
data = larder.open(sys.argv[1])
print(data.shards("train"))
print(data.cache("train", verify=True).batch([2, 0])["x"].tolist())
"""


def test_a_bucket_is_read_with_the_base_packages_alone(s3_env, tmp_path):
    s3_env.create_bucket("readers")
    url = "s3://readers/deep/larder/toy"
    sha256 = publish_toy(url, tmp_path)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", LIGHT + READ, f"{url}@latest"],
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
    assert (tmp_path / "downloads" / f"{sha256}.mdb").exists()
