"""Finds images and other parts that one cache cannot hold, as soon as the shards are written.

What the parts of each shard decode to is in its receipt. So the message is the same whatever the
batches are, and however often the run was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from larder.errors import Failure, ObjectError
from larder.manifest.schemas import SAMPLES
from larder.pipeline.image_rules import image_rules
from larder.pipeline.job import Job, UsedSegment
from larder.pipeline.manifests import read_ref
from larder.pipeline.results import BatchReport, RunError
from larder.samples.indexed import read_index
from larder.shards.formats import shard_format
from larder.shards.forms import FormNote, FormTally, joined, note_role
from larder.shards.images import ImageRules, check_decodable
from larder.store.base import Store
from larder.units import format_count
from larder.versions import layout

_HINT = "convert or exclude one of them, or set cache.records: encoded"
_LOOKED_AT = 1_000


def check_forms(job: Job, root: Store, shards: Iterable[tuple[str, tuple[FormNote, ...]]]) -> None:
    """Refuse parts that differ from the others, naming one of either kind (``cache.schema``).

    They must have the same type of elements as those of the segments next to the new one and, with
    ``cache.same_size``, images the same height and width. Other parts must have the same number of
    dimensions.

    ``shards`` are the split of each shard of the new segment, in order, and the notes of its
    receipt; none in a receipt of an earlier Larder, of which only the cache build finds out.
    """
    cache = job.dataset.cache
    if cache is None or cache.records != "decoded":
        return
    failures: list[Failure] = []
    count = 0
    for split, group in groupby(shards, key=lambda shard: shard[0]):
        notes = joined(notes for _, notes in group)
        kept = (
            joined(_looked_at(job, root, segment, split) for segment in job.kept) if notes else ()
        )
        for name in dict.fromkeys(note.role for note in notes):
            own = [note for note in notes if note.role == name]
            before = [note for note in kept if note.role == name]
            for odd, failure in _differing(own, before, same_size=cache.same_size):
                failures.append(failure)
                count += odd
    if failures:
        raise RunError("shard", BatchReport(failures=tuple(failures), failed=count), hint=_HINT)


def _differing(
    own: list[FormNote], before: list[FormNote], *, same_size: bool
) -> Iterator[tuple[int, Failure]]:
    """The kinds of images of one role that differ, with their numbers.

    The notes in ``before`` come first: earlier segments are not made again.
    """
    rest = max(own, key=lambda note: note.count)  # the first of several
    rest = before[0] if before else rest
    for note in own:
        if note.dtype != rest.dtype:
            number = format_count(note.count, "part" if note.role.startswith(".") else "image")
            message = f"it decodes to {note.dtype}, like {number}, but {rest.key} to {rest.dtype}"
            yield note.count, _failure(note.key, message)
        elif same_size and (odd := _odd(note, rest)):
            key, height, width = odd
            message = f"it is {width} x {height}, but {rest.key} is {rest.width} x {rest.height}"
            yield 1, _failure(key, message)


def _odd(note: FormNote, rest: FormNote) -> tuple[str, int, int] | None:
    """The first image of another size than the first of the rest."""
    if (note.height, note.width) != (rest.height, rest.width):
        return note.key, note.height, note.width
    return (note.odd_key, note.odd_height, note.odd_width) if note.odd_key else None


def _failure(key: str, message: str) -> Failure:
    text = f"{message}, which one cache cannot hold"
    return Failure.of(key, ObjectError("cache.schema", text, where=key))


def _looked_at(job: Job, root: Store, segment: UsedSegment, split: str) -> tuple[FormNote, ...]:
    """The first part of each role in a split of an earlier segment, read from its shard."""
    facts = segment.splits.get(split)
    if facts is None or not facts.samples:
        return ()
    tally, seen = FormTally(), set[str]()
    rows = min(facts.samples, _LOOKED_AT)
    batches = read_ref(root, segment.file("samples"), SAMPLES, first_row=facts.first_row, rows=rows)
    rules = image_rules(job.dataset, job.cluster)
    format_ = shard_format(*segment.format)
    for sample in read_index(batches):
        new = [
            part
            for part in sample.parts
            if rules.decoders.decodes(part.ext) and _role(part.ext, rules) not in seen
        ]
        if not new:
            continue
        key = layout.shard_key(segment.id, split, sample.shard)
        with format_.open(root, key) as reader:
            for ext, data in reader.read(sample, new).items():
                seen.add(_role(ext, rules))
                named = f"{sample.key}.{ext}"
                if form := check_decodable(ext, data, "none", where=named, rules=rules):
                    tally.add(ext, named, form)
    return tally.notes()


def _role(ext: str, rules: ImageRules) -> str:
    return note_role(ext, image=rules.decoders.is_image(ext))
