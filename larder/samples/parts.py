"""Turn objects into parts of samples, one record batch at a time.

WebDataset's rule assigns a key to its sample. Patterns assign keys if the objects of a sample are
in several places, such as images and their masks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.bounds import MAX_KEY_BYTES
from larder.config.patterns import PartPattern, part_pattern
from larder.config.shape import Transform
from larder.errors import ConfigError, Failure, Failures
from larder.manifest.query import Stream
from larder.manifest.schemas import OBJECTS, table
from larder.manifest.sort import sorted_query
from larder.samples.arrow_columns import column_flags
from larder.samples.image_parts import role
from larder.samples.naming import bad_key_reason, bad_path_reason, normalise_ext
from larder.samples.splits import NO_SPLIT, SplitRule, Splits
from larder.units import format_count

PARTS = table(
    sample="string",
    ext="string",
    key="string",
    size_bytes="int64",
    etag="string",
    checksum="string?",
    split="int16",
    order="uint64",
    label="int32?",
    pattern="int16",
    class_name="string?",
)
"""One row per part, with the fields of parts in `larder.manifest.schemas.SAMPLE_ORDER`.

``split`` is an index into the dataset's splits, or `NO_SAMPLE` for an object that is mirrored but
is not part of a sample. `larder.samples.sample_order` adds what depends on the sample: the split
if sample keys are hashed, ``order``, a hash if samples are shuffled, and ``label``, a code of
`larder.samples.labels.ClassTable`. ``pattern`` is the number of the key's pattern in
``samples.join``, or 0. ``class_name`` is the sample's class from an entry of a table.
"""

NO_SAMPLE = 2**15 - 1
"""Number in place of a split for objects of no sample, sorted after all splits."""


# WebDataset's rule for good keys. Keys that do not match are bad; keys that match but
# are suspect are checked by `bad_key_reason`.
_NAME = r"^(?P<sample>(?:[^/]+/)*[^./]+)\.(?P<ext>[^/]+)$"
_SUSPECT = r"(?:^|/)\.\.?/|^__|\.__|[\x00-\x1f\x7f-\x{9f}]"


class Intake:
    """A converter of objects to parts; ``ignored`` counts directory markers and label files.

    ``label_files`` has rows of `PARTS` for mirrored label files.
    """

    def __init__(
        self,
        rule: SplitRule,
        label_files: Collection[str],
        bad_keys: Failures,
        joins: Joins | None = None,
    ) -> None:
        self.ignored = 0
        self.label_files: list[pa.RecordBatch] = []
        self._rule = rule
        self._label_keys = pa.array(sorted(label_files), pa.string())
        self._bad_keys = bad_keys
        self._joins = joins
        self._unmatched = 0
        self._first_unmatched = ""

    def parts(self, objects: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of schema `PARTS` for batches of schema OBJECTS.

        Raises:
            ConfigError: ``config.unmatched_split``, after the last object: some match no split.
        """
        for batch in objects:
            yield self._parts(self._without_ignored(batch))
        if self._unmatched:
            raise self._without_split()

    def _without_ignored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = batch.column("key")
        markers = pc.and_(pc.ends_with(keys, "/"), pc.equal(batch.column("size_bytes"), 0))
        label_files = pc.and_not(pc.is_in(keys, self._label_keys), markers)
        if pc.any(label_files).as_py():
            self._take_label_files(batch.filter(label_files))
        ignored = pc.or_(markers, label_files)
        self.ignored += pc.sum(ignored).as_py() or 0
        return batch.filter(pc.invert(ignored))

    def _take_label_files(self, batch: pa.RecordBatch) -> None:
        good = pa.array([bad_key_reason(key) is None for key in batch.column("key").to_pylist()])
        batch = batch.filter(good)
        rows = _rows(batch, _by_rule(batch.column("key")), np.zeros(len(batch), np.int16))
        self.label_files.append(of_no_sample(rows))

    def _parts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = batch.column("key")
        names = _by_rule(keys) if self._joins is None else self._joins.split(keys)
        good = self._good(keys, names)
        batch, names = batch.filter(good), names.filter(good)
        return _rows(batch, names, self._splits(batch.column("key")))

    def _good(self, keys: pa.Array, names: pa.RecordBatch) -> pa.Array:
        """Flag objects that are parts, by their keys and by the names that patterns make."""
        shown = pc.binary_join_element_wise(names.column("sample"), names.column("ext"), ".")
        suspect = names.column("sample").is_null()
        for texts in (keys, pc.fill_null(shown, "")) if self._joins else (keys,):
            long = pc.greater(pc.binary_length(texts), MAX_KEY_BYTES)
            suspect = pc.or_(pc.or_(suspect, long), pc.match_substring_regex(texts, _SUSPECT))
        good = np.ones(len(keys), np.bool_)
        for row in np.flatnonzero(column_flags(suspect)).tolist():
            key = keys[row].as_py()
            reason = _joined_reason(key, shown[row].as_py()) if self._joins else bad_key_reason(key)
            if reason is not None:
                good[row] = False
                self._bad_keys.add(Failure(key, "config.bad_key", reason))
        return pa.array(good)

    def _splits(self, keys: pa.Array) -> Splits:
        splits = self._rule.of_objects(keys)
        unmatched = np.flatnonzero(splits == NO_SPLIT)
        if len(unmatched):
            self._first_unmatched = self._first_unmatched or keys[int(unmatched[0])].as_py()
            self._unmatched += len(unmatched)
        return splits

    def _without_split(self) -> ConfigError:
        others = self._unmatched - 1
        more = f", like {format_count(others, 'other')}" if others else ""
        return ConfigError(
            "config.unmatched_split",
            f"the object matches no split{more}",
            where=self._first_unmatched,
            hint="add a glob to splits, or exclude it with source.exclude",
        )


def _joined_reason(key: str, name: str | None) -> str | None:
    """Return the reason why an object cannot be a part under a pattern's name, or None."""
    reason = bad_path_reason(key)
    if reason is None and name is None:
        dotted = key.rpartition("/")[2].count(".") > 1
        why = ": what the braces stand for has no dot after its last slash" if dotted else ""
        return f"the key matches no pattern of samples.join{why}"
    if reason is None and (fault := bad_key_reason(name or "")):
        return f"it would become {name}: {fault}"
    return reason


def of_no_sample(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Mark rows of schema `PARTS` as mirrored objects that are not parts of samples."""
    place = PARTS.get_field_index("split")
    splits = pa.array(np.full(len(rows), NO_SAMPLE, np.int16))
    return rows.set_column(place, PARTS.field(place), splits)


def named_objects(
    objects: Iterable[pa.RecordBatch], ignored: Collection[str], joins: Joins | None
) -> Iterator[pa.RecordBatch]:
    """Yield each object's possible ``sample`` and its ``key``, even for a bad key."""
    others = pa.array(sorted(ignored), pa.string())
    for batch in objects:
        keys = batch.column("key").filter(pc.invert(pc.is_in(batch.column("key"), others)))
        samples = (joins.split(keys) if joins else _by_rule(keys)).column("sample")
        named = pa.RecordBatch.from_arrays([samples, keys], names=["sample", "key"])
        yield named.filter(samples.is_valid())


def annotation_parts(
    matched: Iterable[pa.RecordBatch], rule: SplitRule, pattern: int
) -> Iterator[pa.RecordBatch]:
    """Yield rows of `PARTS` for entries of annotation files, from rows of `MATCHED`."""
    for batch in matched:
        fields = ("sample", "ext", "key", "size_bytes", "etag", "checksum")
        columns = [
            *(batch.column(name) for name in fields),
            pa.array(rule.of_objects(batch.column("object"))),
            pa.array(np.zeros(len(batch), np.uint64)),
            pa.nulls(len(batch), pa.int32()),
            pa.array(np.full(len(batch), pattern, np.int16)),
            batch.column("label"),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=PARTS)


def _by_rule(keys: pa.Array) -> pa.RecordBatch:
    """Return rows of `NAMES` by WebDataset's rule; null if the rule does not apply."""
    names = pc.extract_regex(keys, _NAME)
    pattern = pa.array(np.zeros(len(keys), np.int16))
    columns = [*(pc.struct_field(names, name) for name in ("sample", "ext")), pattern]
    return pa.RecordBatch.from_arrays(columns, schema=NAMES)


def _rows(batch: pa.RecordBatch, names: pa.RecordBatch, splits: Splits) -> pa.RecordBatch:
    fields = ("key", "size_bytes", "etag", "checksum")
    columns = [
        names.column("sample"),
        _mapped(names.column("ext"), normalise_ext),
        *(batch.column(name) for name in fields),
        pa.array(splits, pa.int16()),
        pa.array(np.zeros(len(batch), np.uint64)),
        pa.nulls(len(batch), pa.int32()),
        names.column("pattern"),
    ]
    with_classes = "class_name" in batch.schema.names
    classes = batch.column("class_name") if with_classes else pa.nulls(len(batch), pa.string())
    return pa.RecordBatch.from_arrays([*columns, classes], schema=PARTS)


def with_labels(
    objects: Iterable[pa.RecordBatch], labels: Iterable[pa.RecordBatch], work_dir: Path
) -> Iterator[pa.RecordBatch]:
    """Add a column ``class_name`` to objects, from rows of a table.

    Objects are in the order of their keys; ``labels`` has the columns ``key`` and ``class_name``.
    """
    names = pa.schema([PARTS.field(name).with_nullable(False) for name in ("key", "class_name")])
    inputs = {"objects": Stream(OBJECTS, objects), "labels": Stream(names, labels)}
    statement = "SELECT * FROM objects LEFT JOIN labels USING (key)"
    schema = OBJECTS.append(PARTS.field("class_name"))
    return sorted_query(statement, inputs, schema, ["key"], work_dir=work_dir)


def _mapped(exts: pa.Array, function: Callable[[str], str]) -> pa.Array:
    # Few extensions are distinct, so the function is called once for each.
    encoded = exts.dictionary_encode()
    return pa.array(map(function, encoded.dictionary.to_pylist()), pa.string()).take(
        encoded.indices
    )


_EXTS = {"jpeg": "jpg", "png": "png"}


def stored_ext(ext: str, transform: Transform) -> str:
    """Return the extension of a part in shards; images may get the extension of a format."""
    part_role = role(ext)
    kind = "png" if part_role.name in transform.masks else transform.format
    if not part_role.image or kind == "keep":
        return ext
    return f"{part_role.name}.{_EXTS[kind]}" if part_role.name else _EXTS[kind]


def with_stored_exts(
    batches: Iterable[pa.RecordBatch], transform: Transform | None
) -> Iterator[pa.RecordBatch]:
    """Replace the column ``ext`` of parts by the extensions in shards."""
    for batch in batches:
        if transform is None:
            yield batch
        else:
            place = batch.schema.get_field_index("ext")
            exts = _mapped(batch.column(place), partial(stored_ext, transform=transform))
            yield batch.set_column(place, batch.schema.field(place), exts)


NAMES = pa.schema(
    [pa.field("sample", pa.string()), pa.field("ext", pa.string()), pa.field("pattern", pa.int16())]
)
"""The sample key, extension and pattern number of each object; null without a match."""

_NONE = -1


class Joins:
    """Patterns of ``samples.join``. The first pattern that matches a key counts.

    Extensions of parts begin with the names of named patterns.
    """

    def __init__(self, join: Mapping[str, str] | Sequence[str]) -> None:
        named = list(join.items()) if isinstance(join, Mapping) else [("", text) for text in join]
        self.names = [name or text for name, text in named]
        self._patterns = [(name, part_pattern(text)) for name, text in named]

    def split(self, keys: pa.Array) -> pa.RecordBatch:
        """Return rows of `NAMES`, one for each key; extensions are not normalised."""
        pattern = np.full(len(keys), _NONE, np.int16)
        samples = exts = pa.nulls(len(keys), pa.string())
        for number, (name, each) in enumerate(self._patterns):
            left = np.flatnonzero(pattern == _NONE)
            if not len(left):
                break
            groups = pc.extract_regex(keys.take(pa.array(left)), each.regex)
            with_ext = pc.not_equal(pc.struct_field(groups, "ext"), "")
            matched = pc.fill_null(with_ext, False)
            chosen = groups.filter(matched)
            pattern[left[column_flags(matched)]] = number
            places = pa.array(pattern == number)
            samples = pc.replace_with_mask(samples, places, chosen.field("id"))
            exts = pc.replace_with_mask(exts, places, _exts(name, each, chosen))
        numbers = pa.array(pattern, mask=pattern == _NONE)
        return pa.RecordBatch.from_arrays([samples, exts, numbers], schema=NAMES)


def _exts(name: str, pattern: PartPattern, groups: pa.StructArray) -> pa.Array:
    """Join the pattern's name, the texts of the wildcards and the extension by dots."""
    exts = groups.field("ext")
    for number in reversed(range(pattern.wildcards)):
        text = groups.field(f"w{number}")
        longer = pc.binary_join_element_wise(text, exts, ".")
        exts = pc.if_else(pc.equal(text, ""), exts, longer)
    return pc.binary_join_element_wise(name, exts, ".") if name else exts
