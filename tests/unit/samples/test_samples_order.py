import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_names import split_key

from larder.manifest.manifest_files import read_manifest
from larder.manifest.schemas import SAMPLE_ORDER
from larder.samples.naming import bad_key_reason
from larder.samples.sample_order import SampleOrder, SplitCount
from tests.support.errors import larder_error
from tests.support.listings import etag_of, object_batches, ordered

Row = tuple[str, str, int | None, list[dict[str, Any]], dict[str, Any] | None, str | None]

# A change of this would change the shards of every shuffled dataset.
SHUFFLED = ["k3", "k0", "k4", "k8", "k1", "k6", "k7", "k9", "k2", "k5"]


def run(
    folder: Path,
    sizes: dict[str, int] | list[str],
    files: dict[str, bytes] | None = None,
    *,
    cut: int = 1_000,
    **fields: Any,
) -> tuple[SampleOrder, list[Row]]:
    found = ordered(folder, object_batches(sizes, cut), files, **fields)
    rows = [
        tuple(row.values())
        for batch in read_manifest(found.file.path, SAMPLE_ORDER)
        for row in batch.to_pylist()
    ]
    assert found.file.rows == len(rows)
    assert {(row[0], row[2]) for row in rows[found.samples :]} <= {("", None)}
    return found, rows[: found.samples]


def keys_of(rows: list[Row]) -> list[str]:
    return [row[1] for row in rows]


def test_arranges_samples(tmp_path):
    sizes = {
        "train/": 0,
        "train/dog/": 0,
        "train/dog/b.JPEG": 5,
        "train/dog/b.d/x.jpg": 7,
        "train/dog/b.json": 3,
        "train/cat/a.png": 11,
        "val/1.jpg": 13,
        "val.txt": 17,
    }
    found, rows = run(
        tmp_path,
        sizes,
        {"validation": b"1 dog"},
        splits={"validation": "val/*", "train": "train/**", "test": "test/**"},
        labels={"files": {"validation": "val.txt"}, "classes": ["d", "cat", "dog", "b.d"]},
    )

    def part(ext: str, key: str) -> dict[str, Any]:
        known: dict[str, Any] = {"size_bytes": sizes[key], "etag": etag_of(key)}
        known |= {"checksum": None}
        return {"ext": ext, "key": key, **known}

    assert {row[4:] for row in rows} == {(None, None)}
    assert [row[:4] for row in rows] == [
        ("validation", "val/1", 2, [part("jpg", "val/1.jpg")]),
        ("train", "train/cat/a", 1, [part("png", "train/cat/a.png")]),
        (
            "train",
            "train/dog/b",
            2,
            [part("jpg", "train/dog/b.JPEG"), part("json", "train/dog/b.json")],
        ),
        ("train", "train/dog/b.d/x", 3, [part("jpg", "train/dog/b.d/x.jpg")]),
    ]
    assert (found.objects, found.object_bytes, found.statistics.images) == (5, 39, 4)
    assert (found.ignored_count, found.bad_keys.count) == (3, 0)
    assert found.classes == ("d", "cat", "dog", "b.d")
    assert list(found.splits.items()) == [
        ("validation", SplitCount(1, 13)),
        ("train", SplitCount(3, 26)),
        ("test", SplitCount(0, 0)),
    ]


def test_the_digest_is_pinned(tmp_path):
    found, rows = run(tmp_path, {"a/1.JPEG": 5, "a/1.txt": 0})
    assert [(row[0], row[1], row[2]) for row in rows] == [("train", "a/1", None)]
    jpg, txt = etag_of("a/1.JPEG"), etag_of("a/1.txt")
    expected = f"5:train3:a/1~[(3:jpg8:a/1.JPEGi5,32:{jpg})(3:txt7:a/1.txti0,32:{txt})];"
    assert found.digest == hashlib.sha256(expected.encode()).hexdigest()


def test_what_is_mirrored_but_no_part_of_a_sample_follows(tmp_path):
    """Label files and duplicates."""
    sizes = {"a/": 0, "a/1.JPEG": 5, "a/1.jpeg": 6, "a/2.jpg": 7, "a/no-extension": 8}
    files = {"train": b"1 x\n2 y"}
    fields: dict[str, Any] = {"labels": {"files": {"train": "labels.txt"}}}
    found = ordered(tmp_path, object_batches(sizes | {"labels.txt": 9}, 2), files, **fields)
    assert (found.samples, found.objects, found.ignored_count) == (2, 2, 2)
    (batch,) = read_manifest(found.file.path, SAMPLE_ORDER)
    rows = [(*list(row.values())[:3], row["parts"][0]["key"]) for row in batch.to_pylist()]
    assert rows == [
        ("train", "a/1", 0, "a/1.JPEG"),
        ("train", "a/2", 1, "a/2.jpg"),
        ("", "a/1", None, "a/1.jpeg"),
        ("", "labels", None, "labels.txt"),
    ]


def test_images_have_the_extensions_of_what_is_stored(tmp_path):
    images = {"format": "jpeg", "masks": ["seg"]}
    found, rows = run(tmp_path, ["a.bmp", "a.seg.bmp", "b.jpg", "b.png"], shards={"images": images})
    assert [[part["ext"] for part in row[3]] for row in rows] == [["jpg", "seg.png"], ["jpg"]]
    assert [failure.key for failure in found.bad_keys.shown] == ["b.png"]


def test_only_the_first_thousand_bad_keys_are_kept(tmp_path):
    found, rows = run(tmp_path, [f"{at:04}" for at in range(1_500)])
    assert rows == []
    assert found.bad_keys.count == 1_500
    assert [failure.key for failure in found.bad_keys.shown] == [f"{at:04}" for at in range(1_000)]


def test_a_shuffle_is_pinned_and_a_permutation(tmp_path):
    keys = [f"k{at}.jpg" for at in range(10)]
    _, plain = run(tmp_path, keys)
    _, seven = run(tmp_path, keys, shards={"shuffle_seed": 7})
    _, eight = run(tmp_path, keys, shards={"shuffle_seed": 8})
    assert keys_of(seven) == SHUFFLED
    assert keys_of(seven) != keys_of(eight)
    assert sorted(keys_of(seven)) == sorted(keys_of(eight)) == keys_of(plain)


@pytest.mark.parametrize(
    ("keys", "fields", "code", "where"),
    [
        (
            ["a/1.jpg", "b/1.jpg", "b/2.jpg", "c/1.jpg", "no-extension"],
            {"splits": {"train": "a/*"}},
            "config.unmatched_split",
            "b/1.jpg",
        ),
        (
            ["a.jpg", "b.jpg", "b.txt"],
            {"splits": {"train": "*.jpg", "validation": "**"}},
            "config.unmatched_split",
            "b",
        ),
        (["d/a.jpg", "d/b.cls", "d/b.jpg"], {"labels": {}}, "config.label", "d/b"),
    ],
    ids=["no split", "two splits", "a label and a part cls"],
)
def test_the_first_sample_that_does_not_fit_is_named(tmp_path, keys, fields, code, where):
    with larder_error(code, where):
        run(tmp_path, keys, cut=1, **fields)
    assert not (tmp_path / "out.parquet").exists()
    assert list(tmp_path.glob("work/*")) == []


segments = st.text("aB._ é", min_size=1, max_size=5) | st.sampled_from(["a", "b", "a.d", "__x__"])
keys = st.lists(segments, min_size=1, max_size=3).map("/".join)
names = st.tuples(
    st.sampled_from(["a", "b", "a/b", "a.d/c", "é"]),
    st.sampled_from(["jpg", "JPEG", "txt", "seg.jpeg"]),
).map(".".join)


HASHED = {"by": "hash", "seed": 5, "fractions": {"v": 0.25, "t": 0.5, "u": 0.25}}


@settings(deadline=None)
@given(
    sizes=st.dictionaries(keys | names | st.text(max_size=6), st.integers(0, 2**40), max_size=25),
    cut=st.integers(1, 10),
)
def test_arranges_as_the_rules_for_one_key_say(tmp_path_factory, sizes, cut):
    """However the objects are cut into batches."""
    folder = tmp_path_factory.mktemp("arrange")
    shuffled = (
        run(folder, sizes, cut=each, splits=HASHED, shards={"shuffle_seed": 3})[0].digest
        for each in (cut, 1_000)
    )
    assert len(set(shuffled)) == 1
    found, rows = run(folder, sizes, cut=cut)
    samples: dict[str, dict[str, str]] = {}
    bad = set()
    ignored = 0
    for key in sorted(sizes, key=str.encode):
        if key.endswith("/") and not sizes[key]:
            ignored += 1
        elif bad_key_reason(key) is not None:
            bad.add(key)
        else:
            name = split_key(key)
            if samples.setdefault(name.sample_key, {}).setdefault(name.ext, key) != key:
                bad.add(key)
    expected = [
        (sample_key, sorted(samples[sample_key].items(), key=lambda item: item[0].encode()))
        for sample_key in sorted(samples, key=str.encode)
    ]
    assert [(row[1], [(part["ext"], part["key"]) for part in row[3]]) for row in rows] == expected
    assert {failure.key for failure in found.bad_keys.shown} == bad
    assert found.bad_keys.count == len(bad)
    assert found.ignored_count == ignored
    assert all(part["size_bytes"] == sizes[part["key"]] for row in rows for part in row[3])
    assert found.objects == sum(len(row[3]) for row in rows)
    assert found.object_bytes == sum(part["size_bytes"] for row in rows for part in row[3])


def test_the_first_part_with_a_class_from_a_table_gives_the_class(tmp_path):
    (batch,) = object_batches(dict.fromkeys(["a.jpg", "a.json", "a.txt", "b.txt"], 1), 9)
    classes = pa.array([None, "cat", "dog", "dog"])
    found = ordered(
        tmp_path,
        [batch.append_column("class_name", classes)],
        source={"url": "/x", "rows": {}},
        labels={"column": "x", "classes": ["dog", "cat"]},
    )
    assert found.split_classes == {"train": (1, 1)}
