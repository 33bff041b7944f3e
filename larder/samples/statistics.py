"""Statistics of the samples of a dataset, for the plan.

Two anomalies are detected. Objects *merge* if one sample has several of the same kind, such as
``img.v1.jpg`` and ``img.v2.jpg``: they were probably meant to be two samples. Objects *clash* if
they have the same role, such as ``img.jpg`` and ``img.png``: a cache of decoded records cannot hold
both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.samples.image_parts import Role, is_image, role

MOST_EXTENSIONS = 1_000
"""Maximum number of extensions; parts with other extensions are counted together."""

_EXAMPLES = 3
_SHOWN_CLASHES = 1_000
_SHOWN_EXTENSIONS = 4
_Numbers = npt.NDArray[np.int64]


class PartCount(NamedTuple):
    ext: str
    objects: int
    bytes: int


class RoleCount(NamedTuple):
    """The number of samples with a part of one role, and the role's extensions."""

    exts: tuple[str, ...]
    samples: int


class Anomaly(NamedTuple):
    """The number of samples with an anomaly, and the first samples with the parts concerned."""

    samples: int = 0
    examples: tuple[tuple[str, tuple[str, ...]], ...] = ()


class SampleStatistics(NamedTuple):
    """Statistics of the samples.

    Attributes:
        parts: Counts by extension, the most frequent first; at most `MOST_EXTENSIONS`.
        roles: Samples by role, the most frequent first; none if there are other extensions.
        merged: Samples with several parts of one kind.
        clashing: Samples with several parts of one role; up to 1,000 by name.
        empty_images: Images of zero bytes; up to 1,000 by the keys of objects.
        composed: The first sample key with accents in Unicode's form NFC, or empty.
        decomposed: The first sample key with accents in another form, as on macOS, or empty.
    """

    parts: tuple[PartCount, ...] = ()
    other_parts: PartCount = PartCount("", 0, 0)
    roles: tuple[RoleCount, ...] = ()
    most_parts: int = 0
    merged: Anomaly = Anomaly()
    clashing: Anomaly = Anomaly()
    empty_images: Anomaly = Anomaly()
    composed: str = ""
    decomposed: str = ""

    @property
    def images(self) -> int:
        return sum(part.objects for part in self.parts if is_image(part.ext))


class SampleTally:
    """A counter of samples, in bounded memory."""

    def __init__(self) -> None:
        self._parts: dict[str, PartCount] = {}
        self._other = PartCount("", 0, 0)
        self._roles: dict[Role, RoleCount] = {}
        self._found = SampleStatistics()

    def add(self, keys: pa.Array, parts: pa.Array) -> None:
        batch = _SampleColumns(keys, parts)
        self._count(batch)
        self._count_roles(batch)
        found = self._found
        clashing = batch.sharing(batch.roles)
        merged = np.union1d(clashing, batch.sharing(batch.kinds))
        both = [batch.roles, batch.kinds]
        composed, decomposed = _first_forms(keys)
        self._found = found._replace(
            most_parts=max(found.most_parts, int(batch.lengths.max(initial=0))),
            merged=batch.and_more(found.merged, merged, _EXAMPLES, both),
            clashing=batch.and_more(found.clashing, clashing, _SHOWN_CLASHES, [batch.roles]),
            empty_images=batch.with_empty_images(found.empty_images),
            composed=found.composed or composed,
            decomposed=found.decomposed or decomposed,
        )

    def statistics(self) -> SampleStatistics:
        return self._found._replace(
            parts=tuple(sorted(self._parts.values(), key=lambda part: (-part.objects, part.ext))),
            other_parts=self._other,
            roles=() if self._other.objects else self._sorted_roles(),
        )

    def _sorted_roles(self) -> tuple[RoleCount, ...]:
        return tuple(sorted(self._roles.values(), key=lambda count: (-count.samples, count.exts)))

    def _count(self, batch: _SampleColumns) -> None:
        counts = np.bincount(batch.codes, minlength=len(batch.exts)).tolist()
        # Exact, because the sizes of one batch add up to less than 2**53.
        sizes = np.bincount(batch.codes, batch.sizes, minlength=len(batch.exts)).tolist()
        for ext, count, size_bytes in zip(batch.exts, counts, sizes, strict=True):
            listed = ext in self._parts or len(self._parts) < MOST_EXTENSIONS
            before = self._parts.get(ext, PartCount(ext, 0, 0)) if listed else self._other
            after = PartCount(before.ext, before.objects + count, before.bytes + int(size_bytes))
            if listed:
                self._parts[ext] = after
            else:
                self._other = after

    def _count_roles(self, batch: _SampleColumns) -> None:
        if self._other.objects:
            return
        for ext, part_role in zip(batch.exts, batch.roles, strict=True):
            before = self._roles.get(part_role, RoleCount((), 0))
            if ext not in before.exts:
                self._roles[part_role] = before._replace(exts=tuple(sorted((*before.exts, ext))))
        for part_role, samples in batch.holders().items():
            before = self._roles[part_role]
            self._roles[part_role] = before._replace(samples=before.samples + samples)


def _first_forms(keys: pa.Array) -> tuple[str, str]:
    """Return the first key of either Unicode form, or empty; ASCII keys have only one form."""
    keys = keys.filter(pc.not_equal(pc.utf8_length(keys), pc.binary_length(keys)))
    nfc, nfd = (pc.utf8_normalize(keys, form) for form in ("NFC", "NFD"))
    composed = keys.filter(pc.and_(pc.equal(keys, nfc), pc.not_equal(keys, nfd)))
    others = keys.filter(pc.not_equal(keys, nfc))
    return "".join(composed.slice(0, 1).to_pylist()), "".join(others.slice(0, 1).to_pylist())


class _SampleColumns:
    """A few thousand samples, by column: ``kinds`` and ``roles`` for each of ``exts``, ``codes``
    and ``sizes`` for each part, ``lengths`` for each sample.
    """

    def __init__(self, keys: pa.Array, parts: pa.Array) -> None:
        self._keys = keys
        flat = parts.flatten()
        self._part_keys = flat.field("key")
        encoded = flat.field("ext").dictionary_encode()
        self.exts: list[str] = encoded.dictionary.to_pylist()
        self.roles = [role(ext) for ext in self.exts]
        self.kinds = [ext.rpartition(".")[2] for ext in self.exts]
        self.codes: _Numbers = encoded.indices.to_numpy().astype(np.int64)
        self.sizes: _Numbers = flat.field("size_bytes").to_numpy()
        self.lengths: _Numbers = pc.list_value_length(parts).to_numpy().astype(np.int64)

    def holders(self) -> dict[Role, int]:
        distinct = list(dict.fromkeys(self.roles))
        if len(distinct) == len(self.exts):  # no sample has an extension twice
            places = self.codes
        else:
            places = np.unique(self._pairs(self.roles, distinct)) % len(distinct)
        counts = np.bincount(places, minlength=len(distinct)).tolist()
        return dict(zip(distinct, counts, strict=True))

    def sharing(self, values: Sequence[object]) -> _Numbers:
        """Return the samples with two parts of equal value; ``values`` has one per extension."""
        distinct = list(dict.fromkeys(values))
        if len(distinct) == len(self.exts):
            return np.empty(0, np.int64)
        pairs = np.sort(self._pairs(values, distinct))
        return np.unique(pairs[1:][pairs[1:] == pairs[:-1]] // len(distinct))

    def _pairs(self, values: Sequence[object], distinct: Sequence[object]) -> _Numbers:
        """Return a number for each part that combines its sample and its value."""
        place = {value: at for at, value in enumerate(distinct)}
        places = np.array([place[value] for value in values], np.int64)
        owners = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return owners * len(distinct) + places[self.codes]

    def with_empty_images(self, before: Anomaly) -> Anomaly:
        empty = np.flatnonzero(self.sizes == 0)
        if not len(empty):
            return before
        image = np.array([part_role.image for part_role in self.roles], np.bool_)
        parts = empty[image[self.codes[empty]]]
        room = parts[: _SHOWN_CLASHES - len(before.examples)].tolist()
        examples = [
            (self._part_keys[part].as_py(), (self.exts[self.codes[part]],)) for part in room
        ]
        return Anomaly(before.samples + len(parts), (*before.examples, *examples))

    def and_more(
        self, before: Anomaly, samples: _Numbers, most: int, shared: Sequence[Sequence[object]]
    ) -> Anomaly:
        room = samples[: most - len(before.examples)].tolist()
        examples = [(self._keys[row].as_py(), self._sharing_exts(row, shared)) for row in room]
        return Anomaly(before.samples + len(samples), (*before.examples, *examples))

    def _sharing_exts(self, row: int, shared: Sequence[Sequence[object]]) -> tuple[str, ...]:
        start = int(self.lengths[:row].sum())
        codes = self.codes[start : start + int(self.lengths[row])].tolist()
        shared_codes: set[int] = set()
        for values in shared:
            counts = Counter(values[code] for code in codes)
            shared_codes |= {code for code in codes if counts[values[code]] > 1}
        return tuple(sorted(self.exts[code] for code in shared_codes)[:_SHOWN_EXTENSIONS])
