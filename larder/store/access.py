"""How a store is reached; see `larder.config.access`, where locations in files make it."""

from __future__ import annotations

from larder.config.access import DEFAULT_ACCESS, GIVE_UP_SECONDS, Access

__all__ = ["DEFAULT_ACCESS", "GIVE_UP_SECONDS", "Access"]
