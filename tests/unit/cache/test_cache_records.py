import io
import struct
import uuid
import wave
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from image_files import saved
from PIL import Image

from larder.budgets import ByteBudget
from larder.cache import from_samples
from larder.cache.cache_file_build import TRANSACTION_BYTES
from larder.cache.fields import field_name
from larder.cache.file import CacheFileReader, open_file
from larder.cache.from_samples import (
    CacheInput,
    EncodedRecord,
    build_samples,
    built_records,
    built_schema,
)
from larder.cache.schema import Field
from larder.config.shape import decoder_uses
from larder.errors import LarderError
from larder.manifest.schemas import INDEXED
from larder.readers.cache_reader import CacheReader
from larder.samples.decoders import Builder, Decoders
from larder.samples.indexed import Sample
from larder.shards.reading.ranges import PartReader
from tests.support.budgets import WatchedBudget
from tests.support.errors import larder_error
from tests.support.memory import MemoryStore, forget

GAP = b"a header"


class Shelf:
    """Shards in memory, and the index of one split."""

    def __init__(self, name: str) -> None:
        self.store = MemoryStore(name)
        self.rows: list[dict[str, Any]] = []

    def add_shard(
        self, name: str, samples: Sequence[tuple[str, int | None, Mapping[str, bytes]]]
    ) -> None:
        data = bytearray()
        for key, label, contents in samples:
            begin, parts = len(data), []
            for ext, content in contents.items():
                data += GAP
                crc = google_crc32c.value(content)
                parts.append(
                    {"ext": ext, "offset": len(data), "length": len(content), "crc32c": crc}
                )
                data += content
            self.rows.append(
                {
                    "key": key,
                    "shard": name,
                    "offset": begin,
                    "length": len(data) - begin,
                    "label": label,
                    "parts": parts,
                }
            )
        self.store.put(f"shards/{name}", bytes(data))

    def samples(self, kind: Any, **options: Any) -> CacheInput:
        return CacheInput(self.batches, self.open_shard, kind, **options)

    def open_shard(self, name: str) -> PartReader:
        return PartReader(self.store, f"shards/{name}")

    def batches(self) -> list[pa.RecordBatch]:
        table = pa.Table.from_pylist(self.rows, INDEXED)
        return [batch for batch in table.to_batches(max_chunksize=3) if batch.num_rows]


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    name = uuid.uuid4().hex
    yield Shelf(name)
    forget(name)


def png(height: int, width: int, channels: int = 1, value: int = 7) -> bytes:
    array = np.full((height, width, channels), value, np.uint8)
    return saved(Image.fromarray(array[:, :, 0] if channels == 1 else array))


def built(shelf: Shelf, kind: Any, tmp_path: Path, **lines: str) -> CacheFileReader:
    """A cache of a shelf; ``lines`` are those of ``decoding``. Every part is decoded alone."""
    samples = shelf.samples(kind, decoders=Decoders(decoder_uses(lines)))
    path = tmp_path / f"{kind}.mdb"
    facts = build_samples(samples, path, budget=ByteBudget(1))
    return open_file(path, facts, verify=True)


def refused(shelf: Shelf, kind: Any, tmp_path: Path, **lines: str) -> LarderError:
    with pytest.raises(LarderError) as caught:
        built(shelf, kind, tmp_path, **lines)
    assert list(tmp_path.iterdir()) == []
    return caught.value


@pytest.fixture
def labelled(shelf: Shelf) -> Shelf:
    for shard in range(3):
        shelf.add_shard(
            f"{shard}.tar",
            [
                (f"a/{shard}{n}", n % 2, {"cls": b"%d" % (n % 2), "png": png(8, 8, 1, n)})
                for n in range(4)
            ],
        )
    return shelf


def test_every_shard_is_read_once_in_one_pass(labelled, tmp_path):
    opened: list[str] = []

    def noted(name: str) -> Any:
        opened.append(name)
        return labelled.open_shard(name)

    for kind in ("encoded", "decoded"):
        samples = CacheInput(labelled.batches, noted, kind)
        build_samples(samples, tmp_path / f"{kind}.mdb")
    once = ["0.tar", "1.tar", "2.tar"]
    # The first image of all says what shape to begin with.
    assert opened == [*once, "0.tar", *once]


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ([(8, 8, 3), (8, 8, 3)], (8, 8, 3)),
        ([(8, 8, 3), (8, 9, 3)], (8, None, 3)),
        ([(8, 8, 3), (8, 8, 3), (7, 8, 3), (8, 9, 3)], (None, None, 3)),
        ([(8, 8, 1), (8, 8, 1)], (8, 8, 1)),
        ([(8, 8, 1), (8, 8, 3), (8, 8, 1)], (8, 8, 3)),
        ([(8, 8, 3), (5, 8, 1)], (None, 8, 3)),
    ],
)
def test_the_shape_is_the_narrowest_that_fits(shelf, tmp_path, sizes, shape):
    samples = [(str(n), None, {"png": png(*size, n + 1)}) for n, size in enumerate(sizes)]
    shelf.add_shard("a", samples)
    with built(shelf, "decoded", tmp_path) as part:
        assert part.schema.fields[0] == Field("image", "uint8", shape)
        for n, (record, size) in enumerate(zip(part, sizes, strict=True)):
            wanted = np.full((*size[:2], shape[2]), n + 1, np.uint8)
            np.testing.assert_array_equal(record["image"], wanted)


def test_parts_that_some_samples_do_not_have_are_optional(shelf, tmp_path):
    shelf.add_shard("a", [("x", 1, {"jpg": png(2, 2)}), ("y", None, {"json": b"{}"})])
    with built(shelf, "decoded", tmp_path) as part:
        assert [(field.name, field.optional) for field in part.schema.fields] == [
            ("label", True),
            ("image", True),
            ("json", True),
            ("key", False),
        ]
        assert part[0].keys() == {"label", "image", "key"}
        assert part[1].keys() == {"json", "key"}


def test_samples_without_labels_or_images(shelf, tmp_path):
    shelf.add_shard(
        "a", [("größe", None, {"txt": b"hello", "cls": b"5"}), ("b", None, {"txt": b""})]
    )
    for kind in ("encoded", "decoded"):
        with built(shelf, kind, tmp_path) as part:
            assert part.schema.names == ("cls", "txt", "key")
            assert bytes(part[0]["txt"]) == b"hello"
            assert bytes(part[0]["cls"]) == b"5"
            assert bytes(part[0]["key"]).decode() == "größe"
            assert part[1]["txt"].size == 0


def test_an_empty_split(shelf, tmp_path):
    with built(shelf, "decoded", tmp_path) as part:
        assert len(part) == 0
        assert part.schema.names == ("key",)


@pytest.mark.parametrize(
    ("ext", "encoded", "decoded"),
    [
        ("jpg", "jpg", "image"),
        ("seg.png", "seg.png", "image.seg"),
        ("json", "json", "json"),
        *((own, f"part.{own}", f"part.{own}") for own in ("label", "key", "image", "part.key")),
        ("image.txt", "part.image.txt", "part.image.txt"),
        ("image.png", "part.image.png", "image.image"),
    ],
)
def test_parts_called_like_our_fields_have_other_names(ext, encoded, decoded):
    assert field_name(ext, "encoded") == encoded
    assert field_name(ext, "decoded") == decoded


@pytest.mark.parametrize("data", [b"", b"text", png(40, 40, 3)[:60]])
def test_an_undecodable_image_is_named(shelf, tmp_path, data):
    shelf.add_shard("a", [("x", None, {"png": png(40, 40)}), ("y", None, {"png": data})])
    error = refused(shelf, "decoded", tmp_path)
    assert error.code == "sample.undecodable"
    assert "shards/a: y.png" in error.where


def test_a_changed_byte_of_a_shard_is_damage(labelled, tmp_path):
    data = bytearray(labelled.store.get("shards/1.tar"))
    data[labelled.rows[6]["parts"][1]["offset"] + 30] ^= 1
    labelled.store.put("shards/1.tar", data)
    error = refused(labelled, "encoded", tmp_path)
    assert (error.code, error.exit_status) == ("damage.record", 4)
    assert error.where.endswith("shards/1.tar: a/12.png")


def test_an_index_that_goes_back_is_damage(labelled, tmp_path):
    labelled.rows[0], labelled.rows[1] = labelled.rows[1], labelled.rows[0]
    assert refused(labelled, "encoded", tmp_path).code == "damage.manifest"


@pytest.mark.parametrize("window_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("cores", [1, 3])
def test_limits_do_not_change_the_bytes(labelled, tmp_path, monkeypatch, cores, window_bytes):
    plain = build_samples(labelled.samples("decoded"), tmp_path / "a.mdb")
    budget = WatchedBudget(window_bytes)
    monkeypatch.setattr(from_samples, "usable_cores", lambda: cores)
    again = build_samples(labelled.samples("decoded"), tmp_path / "b.mdb", budget=budget)
    assert again == plain
    assert 0 < budget.most <= window_bytes
    assert budget.held == 0


BYTES = Field("key", "uint8", (None,))


def npy(array: Any, dtype: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array, dtype))
    return file.getvalue()


def wav(frames: int, channels: int = 1, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(struct.pack("<h", frames) * frames * channels)
    return file.getvalue()


def filled(shelf: Shelf, *samples: Mapping[str, bytes]) -> Shelf:
    """One shard of a sample each."""
    for number, parts in enumerate(samples):
        shelf.add_shard(f"{number}.tar", [(f"k{number}", None, parts)])
    return shelf


def test_arrays_of_one_shape_are_stacked(shelf, tmp_path):
    values = [np.arange(6).reshape(2, 3) + number for number in range(5)]
    filled(shelf, *({"npy": npy(value)} for value in values))
    with built(shelf, "decoded", tmp_path, npy="npy") as reader:
        assert reader.schema.fields == (Field("npy", "float32", (2, 3)), BYTES)
        batch = CacheReader([reader]).batch([4, 0])
        assert batch["npy"].tolist() == [values[4].tolist(), values[0].tolist()]


def test_dimensions_that_differ_are_open(shelf, tmp_path):
    shapes = [(3, 2, 4), (5, 2, 4), (3, 2, 7)]
    filled(shelf, *({"npy": npy(np.ones(shape))} for shape in shapes))
    with built(shelf, "decoded", tmp_path, npy="npy") as reader:
        assert reader.schema.fields[0] == Field("npy", "float32", (None, 2, None))
        assert [record["npy"].shape for record in reader] == shapes
        assert [array.shape for array in CacheReader([reader]).batch([0, 1])["npy"]] == shapes[:2]


def test_audio_keeps_its_rate(shelf, tmp_path):
    filled(shelf, {"wav": wav(3)}, {"wav": wav(5, rate=44_100)}, {"txt": b"silent"})
    with built(shelf, "decoded", tmp_path, wav="wav") as reader:
        assert reader.schema.fields == (
            Field("txt", "uint8", (None,), optional=True),
            Field("wav", "int16", (None, 1), optional=True),
            Field("wav.rate", "int64", (), optional=True),
            BYTES,
        )
        assert [int(record["wav.rate"]) for record in (reader[0], reader[1])] == [16_000, 44_100]
        assert reader[1]["wav"].tolist() == [[5]] * 5
        assert reader[2].keys() == {"txt", "key"}


def test_a_smallest_array_is_like_any_other(shelf, tmp_path):
    """The shape of a field before anything was seen is also one that an array may have."""
    filled(shelf, *({"npy": npy(np.zeros(shape), "u1")} for shape in ((0, 0, 1), (2, 0, 1))))
    with built(shelf, "decoded", tmp_path, npy="npy") as reader:
        assert reader.schema.fields[0] == Field("npy", "uint8", (None, 0, 1))
        assert [record["npy"].shape for record in reader] == [(0, 0, 1), (2, 0, 1)]


def test_masks_have_fields_of_their_own(shelf, tmp_path):
    colour = saved(Image.fromarray(np.full((2, 3, 3), 9, np.uint8)))
    numbers = np.array([[0, 100, 255], [7, 8, 9]], np.uint8)
    picture = Image.fromarray(numbers)
    picture.putpalette(bytes(range(255, -1, -1)) * 3)
    mask = saved(picture)
    filled(shelf, *[{"jpg": colour, "png": mask, "seg.png": mask, "rgb.png": mask}] * 2)
    with built(shelf, "decoded", tmp_path, png="mask", **{"rgb.png": "image"}) as reader:
        assert [field.name for field in reader.schema.fields] == [
            "image",
            "image.rgb",
            "image.seg",
            "mask",
            "key",
        ]
        for name in ("mask", "image.seg"):
            np.testing.assert_array_equal(reader[1][name], numbers[..., None])
        assert reader[1]["image.rgb"].shape == (2, 3, 3)


@pytest.mark.parametrize("other", [npy([1], "<f8"), npy([[1]])], ids=["float64", "rank 2"])
def test_arrays_of_another_kind_are_refused(shelf, tmp_path, other):
    filled(shelf, {"npy": npy([1])}, {"npy": npy([2, 3])}, {"npy": other})
    error = refused(shelf, "decoded", tmp_path, npy="npy")
    assert error.code == "cache.schema"
    assert error.where.endswith("2.tar: k2.npy")


@pytest.mark.parametrize(
    "samples",
    [[{"wav": wav(3), "wav.rate": b"16000"}], [{"wav": wav(3)}, {"wav.rate": b"16000"}]],
    ids=["two parts of one sample", "bytes in some samples and numbers in others"],
)
def test_parts_that_cannot_share_a_field_are_refused(shelf, tmp_path, samples):
    assert refused(filled(shelf, *samples), "decoded", tmp_path, wav="wav").code == "cache.schema"


ELEMENTS: dict[str, tuple[str, Callable[[Iterator[Sample]], Any]]] = {
    "fewer": ("cache.schema", lambda samples: [next(samples).key]),
    "more": ("cache.schema", lambda samples: [*(1 for _ in samples), 2]),
    "other fields": ("cache.schema", lambda samples: ({each.key[2]: 1} for each in samples)),
    "other dtypes": ("cache.schema", lambda samples: (each.label or 0.5 for each in samples)),
    "a key": ("cache.schema", lambda samples: ({"key": 1} for _ in samples)),
    "one name twice": (
        "cache.schema",
        lambda samples: ({"a.b": 1, "a": {"b": 2}} for _ in samples),
    ),
    "complex": ("cache.schema", lambda samples: (1j for _ in samples)),
    "an error": ("sample.undecodable", lambda samples: (1 / 0 for _ in samples)),
    "nothing": ("sample.undecodable", lambda samples: None),
}


@pytest.mark.parametrize(("code", "function"), ELEMENTS.values(), ids=ELEMENTS)
def test_elements_of_a_builder_that_are_no_records_are_refused(labelled, tmp_path, code, function):
    samples, builder = labelled.samples("encoded"), Builder("f", function, {}, is_divided=False)
    encode = partial(built_records, samples, builder, place="")
    with larder_error(code):
        build_samples(
            samples, tmp_path / "x.mdb", schema=built_schema(samples, builder), encode=encode
        )
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_not_held_while_the_next_is_made(labelled, tmp_path):
    made: list[weakref.ref[np.ndarray[Any, Any]]] = []

    def record() -> EncodedRecord:
        assert not any(each() is not None for each in made)
        array = np.zeros(TRANSACTION_BYTES, np.uint8)
        made.append(weakref.ref(array))
        return EncodedRecord(array.data, 1)

    build_samples(
        labelled.samples("encoded"),
        tmp_path / "x.mdb",
        encode=lambda schema: (record() for _ in range(3)),
    )
    assert len(made) == 3
