"""A sample that is taken out of everything that Larder has stored, as the how-to page says."""

import pytest
from catalog_lab import cleaned, drop_all, runner, tagged
from pipeline_lab import directory_lab, flip, png, write
from required import at_push

from larder.card.draw import card
from larder.verify.verifying import VerifySettings, verify

SECRET = b"the words that have to go " * 20
OBJECTS = {
    f"{name}/{number:02}.txt": b"%s %03d " % (name.encode(), number) * 40
    for name in "ab"
    for number in range(6)
}


@pytest.mark.parametrize(("cache", "mirror"), [(None, False), ({"records": "encoded"}, True)])
@pytest.mark.push
def test_nothing_of_an_erased_sample_is_left(tmp_path, cache, mirror):
    fields = {"labels": {"from": "folder"}, "shards": {"bytes": 6_000}}
    fields |= {"cache": cache, "mirror": mirror}
    objects = OBJECTS | {"a/secret.txt": SECRET, "b/00.png": png(1)}
    lab = directory_lab(tmp_path, objects, validate="none", **fields)
    first = lab.prepare()["version"]
    lab.add({"b/later.txt": b"later"})
    lab.prepare()
    tagged(lab, "v1", first)
    card(lab.settings(), "v1")
    # A repair keeps what it replaces: here a shard with the sample.
    (shard,) = [path for path in lab.files("*.tar") if SECRET in path.read_bytes()]
    flip(shard)
    verify(VerifySettings(lab.settings(), repair=True), runner())
    assert len(holding(lab)) == 3 + bool(cache) + mirror, "shard, replaced, card, cache, mirror"

    source = {"url": lab.source, "exclude": ["a/secret", "a/secret.*"]}  # as of a deny-list
    erased = type(lab)(source, lab.storage, lab.output, {**lab.fields, "omit": "omit.txt"})
    lab.remove("a/secret.txt")
    for name in (f"mirror/a/.larder-tmp-draft-{0:024x}", ".larder-tmp-workshop-x/f"):  # was killed
        path = lab.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(SECRET)
    version = erased.compact()["version"]
    tagged(lab, "v1", delete=True)
    drop_all(lab)
    assert holding(lab)
    assert cleaned(erased, mirror=True)["status"] == "cleaned"

    assert holding(lab) == holding(lab, b"a/secret") == []
    assert lab.check().keys() == {version}
    verify(VerifySettings(erased.settings()), runner())
    assert cleaned(lab, mirror=True, plan_only=True)["status"] == "current"
    again = erased.prepare()
    assert (again["status"], again["copied"]["count"]) == ("reused", 0)


@pytest.mark.parametrize("kind", ["csv", *at_push("jsonl")])
def test_nothing_of_an_erased_row_is_left(tmp_path, kind):
    """Whose table has a copy in containers of Larder's own."""
    rows = [f"{name * 100} {number}" for name in "ab" for number in range(6)]
    tables = {"csv": "text\n{}\n", "jsonl": '{{"text": "{}"}}\n'}

    def table(texts):
        lines = [tables[kind].split("\n")[-2].format(text) for text in texts]
        head = ["text"] if kind == "csv" else []
        return "\n".join([*head, *lines, ""]).encode()

    lab = directory_lab(tmp_path, {}, labels=None, cache=None, validate="none")
    lab = type(lab)({"url": lab.source, "rows": {}}, lab.storage, lab.output, lab.fields)
    source = lab.source["url"]
    write(source, {f"t.{kind}": table([*rows, SECRET.decode()]), f"u.{kind}": table(rows)})
    lab.prepare()
    assert len(holding(lab)) == 1 + (kind == "csv")
    write(source, {f"t.{kind}": table(rows)})
    version = lab.compact()["version"]
    drop_all(lab)
    assert cleaned(lab, grace="24h", plan_only=True)["copies"]["count"] == 0
    assert cleaned(lab)["status"] == "cleaned"

    assert holding(lab) == []
    assert lab.check().keys() == {version}
    assert cleaned(lab)["status"] == "current"
    shard = lab.files("*.tar")[0]
    flip(shard)
    verify(VerifySettings(lab.settings(), repair=True), runner())
    verify(VerifySettings(lab.settings()), runner())


def holding(lab, words=SECRET[:60]):
    paths = (path for path in lab.folder.parents[1].rglob("*") if path.is_file())
    return [path for path in paths if words in path.read_bytes()]
