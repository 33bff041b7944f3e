"""COCO files: images, and annotations that name their image and their category by ID.

The arrays may be in any order and the annotations of an image anywhere, so both are sorted by
image. Format: https://cocodataset.org/#format-data

A file has hundreds of megabytes, in a few arrays of small objects. So it is read one element at a
time: memory holds one element and the text read around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

import pyarrow as pa
import pyarrow.compute as pc

from larder.errors import ConfigError
from larder.manifest.query import Stream
from larder.manifest.schemas import table
from larder.manifest.sort import (
    SortedFile,
    aligned,
    sort,
    sort_to_file,
    whole_keys,
    work_folder,
    write_rows,
)

_ITEMS = table(image="string", place="int64", is_image="bool", text="large_string")
_BY = ("image", "place")
_BATCH_ROWS = 1_000
_MOST_CATEGORIES = 1_000_000


def coco_entries(file: TextIO, key: str, work_dir: Path) -> Generator[tuple[dict[str, Any], str]]:
    """Yield the images of a file with their annotations, in the order of the images' IDs as JSON.

    Each entry has the fields ``image`` and ``annotations``, and comes with its place for messages.

    Raises:
        ConfigError: ``config.annotations``: not a COCO file; two images with one ID; an annotation
            of a missing image or category.
    """
    reading = _CategoryCollector(key)
    with work_folder(work_dir) as folder:
        items = write_rows(Stream(_ITEMS, reading.items(file)), folder / "items.arrow")
        if not reading.images:
            hint = "set samples.annotations.format, or check the file"
            message = "no array 'images' with images, as a COCO file has"
            raise annotation_error(message, key, hint)
        with ExitStack() as stack:
            # One sort after the other, to hold the memory of one sort at a time.
            images = sort_to_file(_of_kind(items, True), _BY, folder / "images.arrow")
            others = stack.enter_context(
                closing(sort(_of_kind(items, False), _BY, work_dir=folder))
            )
            rows = [Stream(_ITEMS, whole_keys(each, "image")) for each in (images.read(), others)]
            for image_rows, annotations in aligned(rows, ("image",)):
                yield from _joined(image_rows, annotations, reading.categories, key)


def _of_kind(items: SortedFile, is_image: bool) -> Stream:
    wanted = pa.scalar(is_image)
    rows = (rows.filter(pc.equal(rows.column("is_image"), wanted)) for rows in items.read())
    return Stream(_ITEMS, rows)


class _CategoryCollector:
    """Collects the categories while images and annotations are written to a file."""

    def __init__(self, key: str) -> None:
        self.images = 0
        self.categories: dict[str, Any] = {}
        self._key = key

    def items(self, file: TextIO) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[str, int, bool, str]] = []
        for place, (array, value, text) in enumerate(elements(file, self._key)):
            if array == "categories":
                self._add_category(value)
            elif array in ("images", "annotations"):
                is_image = array == "images"
                self.images += is_image
                id_ = self._id(value, "id" if is_image else "image_id", array)
                rows.append((id_, place, is_image, text))
            if len(rows) == _BATCH_ROWS:
                yield _batch(rows)
                rows = []
        yield _batch(rows)

    def _add_category(self, value: Any) -> None:
        id_ = self._id(value, "id", "categories")
        if len(self.categories) == _MOST_CATEGORIES:
            raise annotation_error(f"more than {_MOST_CATEGORIES:,} categories", self._key)
        if id_ in self.categories:
            raise annotation_error(f"two categories with the ID {id_}", self._key)
        self.categories[id_] = value.get("name")

    def _id(self, value: Any, name: str, array: str) -> str:
        id_ = value.get(name) if isinstance(value, dict) else None
        if isinstance(id_, bool) or not isinstance(id_, int | str):
            raise annotation_error(f"an element of {array!r} has no {name!r}", self._key)
        return json.dumps(id_)


def _batch(rows: list[tuple[str, int, bool, str]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(_ITEMS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ITEMS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ITEMS)


def _joined(
    images: pa.RecordBatch, annotations: pa.RecordBatch, categories: Mapping[str, Any], key: str
) -> Iterator[tuple[dict[str, Any], str]]:
    rows = zip(
        annotations.column("image").to_pylist(), annotations.column("text").to_pylist(), strict=True
    )
    of_image = {
        image: [text for _, text in group] for image, group in groupby(rows, key=lambda row: row[0])
    }
    before = None
    pairs = zip(images.column("image").to_pylist(), images.column("text").to_pylist(), strict=True)
    for image, text in pairs:
        if image == before:
            raise annotation_error(f"two images with the ID {image}", key)
        before = image
        named = [_named(json.loads(each), categories, key) for each in of_image.pop(image, [])]
        yield {"image": json.loads(text), "annotations": named}, f"{key}, image {image}"
    if of_image:
        raise annotation_error(
            f"annotations of an image {min(of_image)}, which it does not have", key
        )


def _named(annotation: dict[str, Any], categories: Mapping[str, Any], key: str) -> dict[str, Any]:
    category = annotation.get("category_id")
    if category is None or "category" in annotation:
        return annotation
    id_ = json.dumps(category)
    if id_ not in categories:
        raise annotation_error(f"an annotation of a category {id_}, which it does not have", key)
    return {**annotation, "category": categories[id_]}


def annotation_error(message: str, where: str, hint: str = "") -> ConfigError:
    return ConfigError("config.annotations", message, where=where, hint=hint)


MOST_CHARACTERS = 64 * 1024**2
"""Maximum length of one element."""

_STEP = 1024**2
_SPACE = re.compile(r"[ \t\r\n]*")


def parse_json(text: str, where: str) -> Any:
    """Parse a JSON value; ``config.annotations`` if invalid, including NaN and infinities."""
    try:
        return JSON.decode(text)
    except ValueError as error:
        raise _not_json(str(error), where) from None
    except RecursionError:
        raise _not_json("it is nested too deeply", where) from None


class Element(NamedTuple):
    """An element of an array, with the key of the array and the element's text in the file."""

    array: str
    value: Any
    text: str


def elements(file: TextIO, where: str) -> Iterator[Element]:
    """Yield the elements of the arrays that are values of a JSON object; other values are left out.

    Raises:
        ConfigError: ``config.annotations``: no JSON, no object, or an element that is too long.
    """
    return _Scanner(file, where).elements()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


JSON = json.JSONDecoder(parse_constant=_refuse_constant)
"""A decoder that refuses NaN and infinities, which are not JSON."""


def _not_json(reason: str, where: str) -> ConfigError:
    return annotation_error(f"not valid JSON: {reason}", where)


class _Scanner:
    """A text that is read piece by piece, with a position."""

    def __init__(self, file: TextIO, where: str) -> None:
        self._file = file
        self._where = where
        self._text = ""
        self._at = 0
        self._before = 0
        self._ended = False

    def elements(self) -> Iterator[Element]:
        self._expect("{")
        first = True
        while self._next() != "}":
            if not first:
                self._expect(",")
            first = False
            key, _ = self._value()
            if not isinstance(key, str):
                raise self._wrong("expected a key")
            self._expect(":")
            if self._next() == "[":
                yield from (Element(key, *element) for element in self._array())
            else:
                self._value()
        self._expect("}")
        if self._next():
            raise self._wrong("something follows its end")

    def _array(self) -> Iterator[tuple[Any, str]]:
        self._expect("[")
        first = True
        while self._next() != "]":
            if not first:
                self._expect(",")
            first = False
            yield self._value()
        self._expect("]")

    def _next(self) -> str:
        """Return the next character that is not white space; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None, "it matches anywhere"
            self._at = space.end()
            if self._at < len(self._text) or not self._fill():
                return self._text[self._at : self._at + 1]

    def _expect(self, char: str) -> None:
        if self._next() != char:
            raise self._wrong(f"expected {char}")
        self._at += 1

    def _value(self) -> tuple[Any, str]:
        self._next()
        while True:
            try:
                value, end = JSON.raw_decode(self._text, self._at)
            except RecursionError:
                raise self._wrong("it is nested too deeply") from None
            except ValueError as error:
                if not self._fill():
                    raise self._wrong(str(error).partition(":")[0]) from None
                continue
            # A number or a word at the end of the text read so far may continue.
            if end < len(self._text) or not self._fill():
                text = self._text[self._at : end]
                self._at = end
                return value, text

    def _fill(self) -> bool:
        """Read more; return False at the end."""
        if self._ended:
            return False
        if len(self._text) - self._at > MOST_CHARACTERS:
            raise self._wrong(f"an element of more than {MOST_CHARACTERS:,} characters")
        more = self._file.read(max(_STEP, len(self._text) - self._at))
        self._before += self._at
        self._text, self._at = self._text[self._at :] + more, 0
        self._ended = not more
        return bool(more)

    def _wrong(self, reason: str) -> ConfigError:
        return _not_json(f"{reason} at character {self._before + self._at:,}", self._where)
