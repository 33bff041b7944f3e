"""Credentials in the blocks of a real Prefect server, for a source and a storage of their own."""

import json
from collections.abc import Iterator

import pytest

from larder.config.urls import Access
from larder.store import open_store
from tests.support.commands import Workplace
from tests.support.prefect_server import PrefectServer
from tests.support.servers import S3Server, rclone_s3

KEY, SECRET = "LARDERTESTKEY3", "larder-test-secret-3"


@pytest.fixture(scope="module")
def source_server() -> Iterator[S3Server]:
    with rclone_s3(access_key=KEY, secret_key=SECRET) as server:
        yield server


def create_block(
    server: PrefectServer, kind: str, name: str, data: dict[str, str], secret: str
) -> None:
    """Create a block as its page in the UI does; its type, if the server has none."""
    hidden = {"type": "string", "writeOnly": True, "format": "password"}
    schema = {
        "title": kind,
        "type": "object",
        "properties": {key: {"type": "string"} for key in data} | {secret: hidden},
        "block_type_slug": kind,
        "block_schema_references": {},
        "secret_fields": [secret],
    }
    known = server.post("/block_types/filter", {"block_types": {"slug": {"any_": [kind]}}})
    found = [each for each in known if each["slug"] == kind]
    made = found[0] if found else server.post("/block_types/", {"name": kind, "slug": kind})
    described = {"fields": schema, "block_type_id": made["id"], "capabilities": []}
    ids = {
        "block_type_id": made["id"],
        "block_schema_id": server.post("/block_schemas/", described)["id"],
    }
    server.post("/block_documents/", {"name": name, "data": data, **ids})


@pytest.mark.push
def test_source_and_storage_have_blocks_of_their_own(
    tmp_path, prefect_server, source_server, rclone_server
):
    keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
    create_block(prefect_server, "aws-credentials", "reader", keys, "aws_secret_access_key")
    pair = {
        "access_key_id": rclone_server.access_key,
        "secret_access_key": rclone_server.secret_key,
    }
    create_block(prefect_server, "secret", "writer", {"value": json.dumps(pair)}, "value")
    source_server.create_bucket("from-block")
    rclone_server.create_bucket("to-block")
    place = Workplace(tmp_path, PREFECT_API_URL=prefect_server.url)
    profiles = tmp_path / "credentials"
    profiles.write_text(f"[own]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
        store = open_store(
            "s3://from-block/", access=Access(endpoint=source_server.endpoint, profile="own")
        )
        for number in range(3):
            store.put(f"a/{number}.txt", b"text %d" % number)
    settings = [
        "source.url=s3://from-block/",
        f"source.endpoint={source_server.endpoint}",
        "source.block=aws-credentials/reader",
        "cluster.storage.url=s3://to-block/",
        f"cluster.storage.endpoint={rclone_server.endpoint}",
        "cluster.storage.block=secret/writer",
        "validate=none",
    ]
    arguments = ["--dataset", "files", "--json", *(f"--set={each}" for each in settings)]
    done = place.run(*arguments)
    assert done.status == 0, done.err
    assert json.loads(done.out)["status"] == "built"
    assert SECRET not in done.out + done.err
    missing = place.run(*arguments, "--plan", "--set", "source.block=secret/nobody")
    assert missing.status == 2
    assert "config.block" in missing.err + missing.out
    without = place.run(*arguments, "--plan", python=("-m", "larder.cli.main", "prepare"))
    assert without.status == 2
    assert "python -m flows.NAME" in without.err
