"""What the images and other parts of a shard decode to, in a few notes that its receipt keeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from larder.samples.pictures import Form


@dataclass(frozen=True, slots=True)
class FormNote:
    """Images of one role that have the same type of elements, or other parts that are alike.

    Attributes:
        role: Their role in their samples: empty, or the name in ``NAME.png``; of parts that are no
            images, a dot and their extension.
        dtype: The type of their elements; of parts that are no images, their types and numbers of
            dimensions.
        key: The object of the first one.
        height: That of the first one, like the width; both 0 if it is no image.
        odd_key: The object of the first one of another height or width; empty if there is none.
    """

    role: str
    dtype: str
    count: int
    key: str
    height: int
    width: int
    odd_key: str = ""
    odd_height: int = 0
    odd_width: int = 0

    def and_more(self, later: FormNote) -> FormNote:
        """Both together; ``later`` has the same role and type."""
        found = replace(self, count=self.count + later.count)
        if self.odd_key:
            return found
        if (later.height, later.width) != (self.height, self.width):
            odd = later.key, later.height, later.width
        else:
            odd = later.odd_key, later.odd_height, later.odd_width
        return replace(found, odd_key=odd[0], odd_height=odd[1], odd_width=odd[2])


def note_role(ext: str, *, image: bool) -> str:
    return ext.rpartition(".")[0] if image else f".{ext}"


class FormTally:
    """Makes the notes of a shard. Memory does not grow with the number of images."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, str], FormNote] = {}

    def add(self, ext: str, key: str, form: Form | str) -> None:
        """Add a part; ``form`` is from `larder.shards.images.check_decodable`."""
        if isinstance(form, str):
            note = FormNote(note_role(ext, image=False), form, 1, key, 0, 0)
        else:
            place = note_role(ext, image=True)
            note = FormNote(place, form.dtype, 1, key, form.height, form.width)
        self._add(note)

    def notes(self) -> tuple[FormNote, ...]:
        """The notes, in the order in which their first images came."""
        return tuple(self._notes.values())

    def _add(self, note: FormNote) -> None:
        place = note.role, note.dtype
        before = self._notes.get(place)
        self._notes[place] = before.and_more(note) if before else note

    def join(self, notes: Iterable[FormNote]) -> None:
        for note in notes:
            self._add(note)


def joined(notes: Iterable[Iterable[FormNote]]) -> tuple[FormNote, ...]:
    tally = FormTally()
    for own in notes:
        tally.join(own)
    return tally.notes()
