"""A source that a report lists: complete runs, with and without etags, against real S3 servers."""

import uuid
from typing import Any

import pytest
from copy_lab import batch
from pipeline_lab import Lab, images, opened, png, reach

from larder.budgets import ByteBudget
from larder.copy.allowance import CopyLimits
from larder.copy.proof import CopiedObject
from tests.support.errors import larder_error
from tests.support.inventory import write_report
from tests.support.servers import S3Server

FIELDS = {"labels": {"from": "folder"}, "shards": {"bytes": 4_000}}


@pytest.mark.push
@pytest.mark.parametrize(
    ("name", "mirror", "etags"), [("rclone", True, True), ("moto", False, False)]
)
def test_a_run_from_a_report(name, mirror, etags, tmp_path, request):
    server: S3Server = request.getfixturevalue(f"{name}_server")
    server.create_bucket("reported")
    prefix = f"{uuid.uuid4().hex}/a b+c/"
    with opened("s3://reported/", **reach(server)) as store:
        infos = [store.put(prefix + key, data) for key, data in images().items()]
        rows = [
            (i.key, True, False, i.size_bytes, i.etag if etags else "", "STANDARD") for i in infos
        ]
        where = f"reports/{uuid.uuid4().hex}/"
        key = write_report(store, where, "CSV", [rows], sourceBucket="reported")
        store.put(f"{prefix}a/99.png", png(99))
        source: dict[str, Any] = {"url": f"s3://reported/{prefix}", **reach(server)}
        listed = {**source, "exclude": ["a/99.png"]}
        source["inventory"] = {"url": f"s3://reported/{key}"}
        lab = Lab(source, str(tmp_path / "storage"), tmp_path / "out", {**FIELDS, "mirror": mirror})

        planned = lab.plan()
        assert "reported_source" in {warning["code"] for warning in planned["warnings"]}
        built = lab.prepare()
        assert built["status"] == "built"
        assert lab.check().keys() == {built["version"]}
        assert lab.prepare()["status"] == "reused"
        plain = Lab(listed, str(tmp_path / "other"), tmp_path / "out", lab.fields).prepare()
        assert plain["digest"] == built["digest"]
        assert (plain["inputs"] == built["inputs"]) is etags

        store.put(f"{prefix}a/01.png", png(77, width=11))  # since the report
        fresh = Lab(source, str(tmp_path / "fresh"), tmp_path / "out", lab.fields)
        with larder_error("run.failed"):
            fresh.prepare()


@pytest.mark.parametrize("target_url", ["s3://reported/", "memory://without-etags"])
def test_objects_without_etags_are_copied_as_they_are_now(target_url, moto_server):
    """Small and in parts, through this machine and by the server; the size must be that listed."""
    moto_server.create_bucket("reported")
    own = uuid.uuid4().hex
    bodies = {"small": b"x" * 1000, "large": bytes(range(256)) * (12 << 12)}
    limits = CopyLimits(4, ByteBudget(64 << 20), part_bytes=5 << 20, server_copy_bytes=8 << 20)
    copied: list[CopiedObject] = []
    with (
        opened("s3://reported/", **reach(moto_server)) as source,
        opened(target_url, **reach(moto_server)) as target,
    ):
        infos = [
            source.put(f"{own}/{name}", data)._replace(etag="") for name, data in bodies.items()
        ]
        wrong = infos[1]._replace(size_bytes=infos[1].size_bytes - 1)
        for objects, failed in ((infos, []), ([wrong], [f"{own}/large"])):
            prefix = f"copy {failed}/"
            failures = batch(source, target, objects, limits, copied.append, prefix=prefix)
            assert [failure.key for failure in failures] == failed
        assert sorted(row.etag for row in copied) == ["", ""]
        assert {name: target.get(f"copy []/{own}/{name}") for name in bodies} == bodies
