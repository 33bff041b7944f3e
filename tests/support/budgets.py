"""A budget of bytes that remembers how it was used."""

import threading

from larder.budgets import ByteBudget


class WatchedBudget(ByteBudget):
    """Remembers what was asked for, what is held, and the most bytes and holders at once."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__(total_bytes)
        self.asked: list[int] = []
        self.held = self.most = 0
        self.holders = self.most_holders = 0
        self._watch = threading.Lock()

    def acquire(self, size_bytes: int) -> int:
        return self._note(size_bytes, super().acquire(size_bytes))

    def try_acquire(self, size_bytes: int) -> int | None:
        taken = super().try_acquire(size_bytes)
        return None if taken is None else self._note(size_bytes, taken)

    def release(self, taken: int) -> None:
        with self._watch:
            self.held -= taken
            self.holders -= 1
        super().release(taken)

    def _note(self, size_bytes: int, taken: int) -> int:
        with self._watch:
            self.asked.append(size_bytes)
            self.held += taken
            self.holders += 1
            self.most = max(self.most, self.held)
            self.most_holders = max(self.most_holders, self.holders)
        return taken
