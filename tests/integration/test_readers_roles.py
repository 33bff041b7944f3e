"""The light install reads a bucket on a role: real servers give the credentials, and check them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pipeline_lab import directory_lab, images, reach, write
from test_datalayer_storage import LIGHT

from tests.support.certificates import local_certificate
from tests.support.http_server import QuietHandler, serving
from tests.support.servers import S3Server, rclone_s3

pytestmark = pytest.mark.push


READ = """
import larder
from larder.errors import LarderError
try:
    data = larder.open(sys.argv[1])
    print(data.cache("train", verify=True).batch([2, 0])["label"].tolist())
except LarderError as error:
    print(f"{error.code}: {error.message}; {error.hint}")
"""

Answer = tuple[int, str]
Answers = Callable[[str, str, dict[str, str]], Answer]
"""Method, path and headers in lower case to status and body."""


def handler(answers: Answers) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def answered(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            path = f"{self.path}?{body}" if body else self.path
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, text = answers(self.command, path, headers)
            self.answer(status, text.encode())

        do_GET = do_PUT = do_POST = answered  # noqa: N815

    return Handler


def credentials(server: S3Server) -> str:
    return json.dumps(
        {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "AccessKeyId": server.access_key,
            "SecretAccessKey": server.secret_key,
            "Token": "session",
            "LastUpdated": "2020-01-01T00:00:00Z",
            "Expiration": "2099-01-01T00:00:00Z",
        }
    )


def imds(server: S3Server) -> Answers:
    """An instance's metadata, second version alone."""
    roles = "/latest/meta-data/iam/security-credentials/"

    def answers(method: str, path: str, headers: dict[str, str]) -> Answer:
        if (method, path) == ("PUT", "/latest/api/token"):
            return 200, "of-metadata"
        if headers.get("x-aws-ec2-metadata-token") != "of-metadata":
            return 401, ""
        if path in (roles, roles[:-1]):
            return 200, "reader"
        return (200, credentials(server)) if path == f"{roles}reader" else (404, "")

    return answers


@pytest.fixture(scope="module")
def published(rclone_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    rclone_server.create_bucket("roles")
    lab = directory_lab(tmp_path_factory.mktemp("toy"), images("abc", 1))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in rclone_server.environment.items():
            patch.setenv(name, value)
        replace(lab, storage={"url": "s3://roles", **reach(rclone_server)}).prepare()
    return "s3://roles/larder/d"


@pytest.fixture
def environment(rclone_server: S3Server, published: str, tmp_path: Path) -> dict[str, str]:
    """Of a container without keys: it knows where the bucket is, and no more."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **kept,
        "HOME": str(tmp_path),
        "LARDER_CACHE_DIR": str(tmp_path / "downloads"),
        "AWS_ENDPOINT_URL_S3": rclone_server.endpoint,
        "AWS_REGION": "eu-central-1",
        "NO_PROXY": "127.0.0.1",
    }


def read(url: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT + READ, url],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_the_role_of_an_instance(rclone_server, published, environment):
    with serving(handler(imds(rclone_server))) as url:
        environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = f"{url}/"
        assert read(published, environment) == "[2, 0]"
        said = read(f"{published}@absent", environment)
        assert said.startswith("version.missing: there is no version or tag 'absent'")
        assert "latest" in said, "it lists what there is"


def test_metadata_without_a_role_is_not_a_missing_version(published, environment):
    with serving(handler(lambda *_: (404, "<Code>NoSuchKey</Code>"))) as url:
        environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = url
        said = read(published, environment)
    assert said.startswith("store.denied: no AWS credentials")
    said = read(published, environment)  # nothing listens there any more
    assert said.startswith("store.denied: no AWS credentials")


WORKERS = """
import multiprocessing, warnings
from larder.store import open_store

store = open_store(sys.argv[1])

def work(key):
    keys = [info.key for page in store.list() for info in page]
    with store.open(key, offset=2, length=5) as reader:
        part = b"".join(bytes(piece) for piece in reader)
    assert part == store.get(key)[2:7] and key in keys
    return key

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of forks beside threads
    keys = [info.key for page in store.list() for info in page]
    for key in keys:  # so that there are connections and credentials to inherit
        work(key)
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(3) as pool:
            assert pool.map(work, 4 * keys, chunksize=1) == 4 * keys
        work(keys[0])
        print(method)
"""


@pytest.mark.parametrize("secure", [False, True])
def test_workers_of_both_kinds_list_and_stream(environment, tmp_path, monkeypatch, secure):
    program = tmp_path / "program.py"
    program.write_text(LIGHT + WORKERS)
    with rclone_s3(tls=local_certificate(tmp_path) if secure else None) as server:
        server.create_bucket("roles")
        for name, text in server.environment.items():
            monkeypatch.setenv(name, text)
        write("s3://roles/toy", {name: name.encode() * 9 for name in ("one", "two", "three")})
        environment["AWS_ENDPOINT_URL_S3"] = server.endpoint
        environment["AWS_CA_BUNDLE"] = server.certificate
        with serving(handler(imds(server))) as url:
            environment["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = url
            done = subprocess.run(
                [sys.executable, str(program), "s3://roles/toy"],
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["fork", "spawn"])
