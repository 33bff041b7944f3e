"""Where copies and their receipts are, below the root of a store. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from larder.versions import layout


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """The prefixes of one kind of copies: ``objects`` precedes the key of each."""

    objects: str
    receipts: str

    def finished(self, batch: str) -> str:
        return f"{self.receipts}{batch}/"

    def partial(self, batch: str | None = None) -> str:
        """Prefix of receipts left before their batch was finished; of one batch, or of all.

        It comes after those of batches in every listing: the names of batches begin with hex
        digits.
        """
        return f"{self.receipts}partial/" + (f"{batch}/" if batch else "")

    @property
    def merged(self) -> str:
        """Prefix of merged receipts: between those of batches and the partial ones."""
        return f"{self.receipts}merged/"

    @property
    def merged_key(self) -> str:
        """Key of the document that says which receipts are merged."""
        return f"{self.merged}receipts.json"


MIRROR = CopyPlace(layout.mirror_prefix(), layout.copies_prefix())
"""The mirror of a dataset, below the dataset's root."""
