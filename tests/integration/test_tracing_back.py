"""`larder trace` of a sample that each version packs again, with others in its shard."""

from collections import Counter

from catalog_lab import place_of
from pipeline_lab import directory_lab

from larder.catalog.trace import trace
from larder.jobs import manifests


def test_each_segment_is_read_once_for_all_versions(tmp_path, monkeypatch):
    objects = {f"a/{number:02}.txt": b"%d" % number * 500 for number in range(24)}
    lab = directory_lab(tmp_path, objects, shards={"bytes": 5_000}, cache=None)
    first = lab.prepare()["version"]
    for change in range(4):
        lab.add({"a/01.txt": b"%d" % change * 1_000})
        latest = lab.prepare(growth={"removals": "repack"})["version"]
    reads: Counter[str] = Counter()
    read_manifest = manifests.read_manifest

    def counted(path, *arguments, **options):
        reads[str(path)] += 1
        return read_manifest(path, *arguments, **options)

    monkeypatch.setattr(manifests, "read_manifest", counted)
    in_first = trace(place_of(lab), first, "a/00")["shard"]
    assert trace(place_of(lab), "latest", "a/01")["since"]["version"] == latest
    reads.clear()
    found = trace(place_of(lab), "latest", "a/00")
    assert found["since"]["version"] == first
    assert found["shard"] != in_first, "it was packed again"
    assert len(reads) > 2, "it was looked for in several segments"
    assert max(reads.values()) <= 2, "once to find the sample, and once for all versions before"
