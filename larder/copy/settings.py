"""The settings of a copy: what its arguments and flags, and perhaps a cluster file, say."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from larder.config.access import check_overlap, directory
from larder.config.load import load_cluster
from larder.config.models import CopyConfig, Location, RunnerConfig, Source
from larder.config.places import Argument, located, read_places
from larder.copy.site import in_region
from larder.errors import ConfigError
from larder.jobs.runner import workers
from larder.store import OnUnlisted, open_location
from larder.store.base import Store


@dataclass(frozen=True, slots=True)
class CopySettings:
    """Everything that a copy is told; both places have absolute URLs.

    ``retry_failed``: only the objects are copied that the last copy failed for.
    """

    source: Source
    storage: Location
    limits: CopyConfig
    runner: RunnerConfig
    retry_failed: bool = False

    @property
    def workers(self) -> int:
        """Number of concurrent batches."""
        return workers(self.runner, self.limits)

    def open_source(self, url: str | None = None, *, unlisted: OnUnlisted | None = None) -> Store:
        """The source, or a URL with its credentials."""
        give_up_seconds = self.limits.give_up_seconds
        return open_location(self.source, url, give_up_seconds=give_up_seconds, unlisted=unlisted)

    def in_regions(self, source: str | None, storage: str | None) -> CopySettings:
        """The same with regions that were found; see `larder.copy.site.in_region`."""
        return replace(
            self,
            source=in_region(self.source, source),
            storage=in_region(self.storage, storage),
        )

    def retrying(self) -> CopySettings:
        """The same for what the last copy failed for; globs are ``config.invalid_flag``."""
        if self.source.include != ("**",) or self.source.exclude:
            message = "failed objects are known by their keys: globs do not apply"
            hint = "leave --include and --exclude out"
            raise ConfigError("config.invalid_flag", message, where="--retry-failed", hint=hint)
        return replace(self, retry_failed=True)

    def open_root(self) -> Store:
        return open_location(self.storage, give_up_seconds=self.limits.give_up_seconds)


def load_copy_settings(
    source: str,
    storage: str,
    *,
    cluster: str | None = None,
    config_dir: str | Path = "configs",
    settings: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    verify: str | None = None,
) -> CopySettings:
    """Read the arguments of a command that copies; all mistakes are raised at once.

    ``cluster`` gives the limits and the way to reach its storage, and ``settings`` override fields
    of ``source``, ``storage``, ``copy`` and ``runner`` as ``key.path=value``. It is refused if one
    of the two places is inside the other (``config.overlap``).
    """
    folder = directory(Path(config_dir), "--config-dir")
    places = read_places(
        (
            Argument(("source", "url"), source, "SOURCE"),
            Argument(("storage", "url"), storage, "STORAGE"),
            Argument(("source", "include"), list(include) or None, "--include"),
            Argument(("source", "exclude"), list(exclude) or None, "--exclude"),
            Argument(("copy", "verify"), verify, "--verify"),
        ),
        settings,
        load_cluster(folder, cluster, (), os.environ) if cluster else None,
    )
    resolved = CopySettings(
        source=located(places.source, os.environ, "SOURCE"),
        storage=located(places.storage, os.environ, "STORAGE"),
        limits=places.copy_,
        runner=places.runner,
    )
    check_overlap(
        resolved.source, resolved.storage.url, storage_endpoint=resolved.storage.access.endpoint
    )
    return resolved
