"""Archives as sources: ``source.archives: expand``."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
from archives_lab import by_class, imagenet, tar
from pipeline_lab import Lab, contents, directory_lab, images, png, write

from larder.errors import ConfigError
from larder.jobs.results import RunError


def archive_lab(folder: Path, objects: dict[str, bytes], **fields: Any) -> Lab:
    """From a directory with archives to another directory."""
    lab = directory_lab(folder, objects, **fields)
    source = {"url": lab.source, "archives": "expand"}
    return Lab(source, lab.storage, lab.output, lab.fields)


def samples(lab: Lab) -> dict[str, dict[str, bytes]]:
    """The samples of the only version, by key."""
    return {key: parts for (_, key), parts in contents(lab.only()).items()}


def expected(prefix: str, classes: str = "abc", each: int = 4) -> dict[str, dict[str, bytes]]:
    """The same from the images themselves; ``{}`` in the prefix is the class."""
    found: dict[str, dict[str, bytes]] = {}
    for key, data in images(classes, each).items():
        folder, _, name = key.partition("/")
        stem, _, ext = name.partition(".")
        parts = found.setdefault(f"{prefix.format(folder)}/{stem}", {"cls": folder.encode()})
        parts[ext] = data
    return found


def test_a_tar_of_tars_is_as_if_it_had_been_unpacked(tmp_path: Path) -> None:
    lab = archive_lab(tmp_path, {"train.tar": imagenet()})
    document = lab.prepare()
    assert document["status"] == "built"
    assert samples(lab) == expected("train.tar/{}.tar")
    assert lab.prepare()["status"] == "reused"


def test_archives_of_classes_beside_loose_objects(tmp_path: Path) -> None:
    classes = by_class()
    loose = {f"c/{name}": data for name, data in classes.pop("c").items()}
    objects = {f"{name}.tar": tar(members) for name, members in classes.items()}
    lab = archive_lab(tmp_path, objects | loose)
    lab.prepare()
    assert samples(lab) == expected("{}.tar", "ab") | {
        key: value for key, value in expected("{}").items() if key.startswith("c/")
    }


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_all_formats(tmp_path: Path, format_: int) -> None:
    members = {f"./{'long/' * 15}a/{name}": data for name, data in by_class("a")["a"].items()}
    lab = archive_lab(tmp_path, {"x.tar": tar(members, format_)})
    lab.prepare()
    assert samples(lab) == expected("x.tar/" + "long/" * 15 + "{}", "a")


def test_empty_archives_are_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="have no members and no rows") as caught:
        archive_lab(tmp_path, {"x.tar": tar({})}).plan()
    assert caught.value.code == "config.empty_source"


def test_globs_match_members_or_archives(tmp_path: Path) -> None:
    objects = {"in/train.tar": imagenet(), "val.tar": imagenet("de"), "test.tar": b"not read"}
    lab = archive_lab(tmp_path, objects)
    source = {**lab.source, "include": ["in/*.tar/a*/*.png", "val.tar"], "exclude": ["**/0[2-9]*"]}
    lab = Lab(source, lab.storage, lab.output, lab.fields)
    document = lab.plan()
    assert document["excluded"]["not_included"]["keys"][0] == "test.tar"
    assert document["objects"]["count"] == 2 + 6
    assert document["inside"] == {"containers": 2, "read": 2, "objects": 15 + 10}
    assert document["excluded"]["listed"] == 1 + 15 + 10
    lab.prepare()
    assert set(samples(lab)) == {
        "in/train.tar/a.tar/00",
        "in/train.tar/a.tar/01",
        *(f"val.tar/{name}.tar/0{number}" for name in "de" for number in range(2)),
    }


def test_nothing_included_is_an_error(tmp_path: Path) -> None:
    lab = archive_lab(tmp_path, {"train.tar": imagenet()})
    lab = Lab({**lab.source, "include": "**/*.flac"}, lab.storage, lab.output, lab.fields)
    with pytest.raises(ConfigError, match="nothing in the archives") as caught:
        lab.prepare()
    assert caught.value.code == "config.empty_source"


@pytest.mark.parametrize("name", ["a/../x.jpg", "inner.tar.gz"])
def test_unsafe_members_are_bad_keys(tmp_path: Path, name: str) -> None:
    members = {f"a/{key}": data for key, data in by_class("a")["a"].items()}
    lab = archive_lab(tmp_path, {"x.tar": tar(members | {name: b"1"})})
    with pytest.raises(RunError, match="1 failed in expand") as caught:
        lab.plan()
    (failure,) = caught.value.report.failures
    assert failure.key == f"x.tar/{name}"
    assert failure.code == "config.bad_key"
    skipping = lab.prepare(on_bad_key="skip")
    assert skipping["skipped"] == 1
    assert samples(lab) == expected("x.tar/{}", "a")


def test_links_are_not_left_out_silently(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as file:
        for key, data in by_class("a")["a"].items():
            (tmp_path / key).write_bytes(data)
            file.add(tmp_path / key, f"a/{key}")
        for kind in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo(f"a/9{kind.decode()}.png")
            info.type, info.linkname = kind, "a/00.png"
            file.addfile(info)
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        file.addfile(folder)
    lab = archive_lab(tmp_path, {"x.tar": path.read_bytes()})
    with pytest.raises(RunError, match="3 failed in expand") as caught:
        lab.prepare()
    assert {failure.code for failure in caught.value.report.failures} == {"config.bad_key"}
    assert lab.prepare(on_bad_key="skip")["skipped"] == 3


def test_of_members_with_one_name_the_last_counts(tmp_path: Path) -> None:
    first, second = by_class("ab").values()
    path = tmp_path / "x.tar"
    for mode, found in (("w", first), ("a", second)):
        with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
            for name, data in found.items():
                (tmp_path / name).write_bytes(data)
                file.add(tmp_path / name, f"a/{name}")
    lab = archive_lab(tmp_path, {"x.tar": path.read_bytes()})
    lab.prepare()
    found = samples(lab)
    assert {key: value["png"] for key, value in found.items()} == {
        f"x.tar/a/{name[:2]}": data for name, data in second.items() if name.endswith("png")
    }


def test_of_archives_with_one_name_only_the_last_counts(tmp_path: Path) -> None:
    inner = [tar({"a/0.jpg": b"1", "a/1.jpg": b"2"}), tar({"a/1.jpg": b"3"})]
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as file:
        for data in inner:
            (tmp_path / "inner").write_bytes(data)
            file.add(tmp_path / "inner", "inner.tar")
    lab = archive_lab(tmp_path, {"x.tar": path.read_bytes()}, validate="none", cache=None)
    lab.prepare()
    assert samples(lab) == {"x.tar/inner.tar/a/1": {"jpg": b"3", "cls": b"a"}}


def test_a_member_and_an_object_with_one_key_are_refused(tmp_path: Path) -> None:
    url = "memory://archives-clash"
    write(url, {"x.tar": imagenet("ab"), "x.tar/a.tar/00.png": b"1"})
    lab = Lab(
        {"url": url, "archives": "expand"},
        str(tmp_path / "local"),
        tmp_path / "out",
        {"validate": "none"},
    )
    with pytest.raises(RunError) as caught:
        lab.prepare()
    assert [failure.line for failure in caught.value.report.failures] == [
        "x.tar/a.tar/00.png: another object has the same key"
    ]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text"])
def test_damaged_archives_are_all_named(tmp_path: Path, damage: str) -> None:
    good = imagenet()
    bad = {
        "cut": good[: len(good) // 2],
        "flip": good[:600] + b"\xff" + good[601:],
        "empty": b"",
        "text": b"hello\n" * 1000,
    }[damage]
    if damage == "flip":  # of the header of an archive in it
        assert good[512:612].startswith(b"00.png")
    lab = archive_lab(tmp_path, {"x.tar": bad, "y.tar": good, "z.tar": bad}, on_bad_key="skip")
    with pytest.raises(RunError, match="2 failed in expand") as caught:
        lab.plan()
    assert [failure.key for failure in caught.value.report.failures] == ["x.tar", "z.tar"]
    assert {failure.code for failure in caught.value.report.failures} == {"object.format"}


def test_compressed_archives_are_refused(tmp_path: Path) -> None:
    lab = archive_lab(tmp_path, {"x.tar": imagenet(), "y.tar.gz": b"1", "z.tgz": b"2"})
    with pytest.raises(RunError, match="2 failed in expand") as caught:
        lab.plan()
    assert [failure.key for failure in caught.value.report.failures] == ["y.tar.gz", "z.tgz"]
    source = {**lab.source, "exclude": ["*.tar.gz", "*.tgz"]}
    assert Lab(source, lab.storage, lab.output, lab.fields).prepare()["status"] == "built"


def test_members_cannot_be_mirrored(tmp_path: Path) -> None:
    lab = archive_lab(tmp_path, {"x.tar": imagenet()})
    with pytest.raises(ValueError, match="members of archives and rows are not mirrored"):
        lab.plan(mirror=True)
    assert lab.plan()["mirror"]["wanted"] is False


def test_imagenet_as_it_ships(tmp_path: Path) -> None:
    """A tar of tars for training, a flat tar for validation, and its labels in a file."""
    val = {
        f"val_{number}.png": data
        for number, data in enumerate(images().values())
        if data[:1] != b"{"
    }
    labels = "".join(f"{name} {'abc'[at % 3]}\n" for at, name in enumerate(val))
    objects = {"train.tar": imagenet(), "val.tar": tar(val), "val.txt": labels.encode()}
    lab = archive_lab(
        tmp_path,
        objects,
        splits={"train": "train.tar/**", "validation": "val.tar/**"},
        labels={"from": "folder", "files": {"validation": "val.txt"}},
    )
    source = {**lab.source, "include": ["**/*.png", "val.txt"]}
    lab = Lab(source, lab.storage, lab.output, lab.fields)
    lab.prepare()
    published = lab.only()
    assert published.version.classes == ("a", "b", "c")
    found = contents(published)
    assert {parts["cls"] for (split, key), parts in found.items() if split == "train"} == {
        b"a",
        b"b",
        b"c",
    }
    assert {
        key: parts["cls"] for (split, key), parts in found.items() if split == "validation"
    } == {
        f"val.tar/{name.removesuffix('.png')}": b"abc"[at % 3 : at % 3 + 1]
        for at, name in enumerate(val)
    }
    assert lab.prepare()["status"] == "reused"


def test_shards_of_other_tools_are_a_source(tmp_path: Path) -> None:
    """WebDataset archives: their members are parts of samples again."""
    lab = directory_lab(tmp_path / "first")
    lab.prepare()
    shards = {path.name: path.read_bytes() for path in Path(str(lab.storage)).rglob("*.tar")}
    again = archive_lab(tmp_path / "second", shards)
    again = Lab(
        {**again.source, "exclude": ["**/*.cls"]}, again.storage, again.output, again.fields
    )
    again.prepare()
    found = {key.partition("/")[2]: parts for key, parts in samples(again).items()}
    assert {key: parts["png"] for key, parts in found.items()} == {
        key.removesuffix(".png"): data for key, data in images().items() if key.endswith(".png")
    }
    assert all(parts["cls"] == key[:1].encode() for key, parts in found.items())


def test_members_are_joined_and_annotated_like_objects(tmp_path: Path) -> None:
    pictures = {f"{number}.png": png(number) for number in range(4)}
    captions = {f"{number}.txt": b"caption %d" % number for number in range(4)}
    table = "file_name,kind\n" + "".join(f"{n}.png,{'xy'[n % 2]}\n" for n in range(4))
    objects = {"i.tar": tar(pictures), "c.tar": tar(captions), "kinds.csv": table.encode()}
    lab = archive_lab(
        tmp_path,
        objects,
        cache=None,
        labels={"from": "column", "column": "kind"},
        samples={
            "join": {"image": "i.tar/{id}.png", "caption": "c.tar/{id}.txt"},
            "annotations": {"files": "kinds.csv"},
        },
    )
    lab = Lab({**lab.source, "rows": {}, "exclude": []}, lab.storage, lab.output, lab.fields)
    lab.prepare()
    found = samples(lab)
    assert len(found) == 4
    for number, parts in enumerate(parts for _, parts in sorted(found.items())):
        assert sorted(parts) == ["caption.txt", "cls", "image.png", "json"]
        assert parts["image.png"] == png(number)
        assert parts["caption.txt"] == b"caption %d" % number
        assert parts["cls"] == b"xy"[number % 2 : number % 2 + 1]
    assert lab.prepare()["status"] == "reused"
