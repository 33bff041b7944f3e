"""What a consumer has to have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from larder.config.models.cluster import Cluster
from larder.experiments.delivery import ConfigFile, DeliveredVersion, VersionContents


class ConsumerConfigs(Protocol):
    """What makes the configs of one kind of consumer; pure functions.

    ``where`` names the template in errors.
    """

    DELIVERIES: tuple[str, ...]
    """The deliveries that it can render; the others are refused."""

    TEMPLATE: str | None
    """The default among its templates, which are in one folder: its path in
    ``configs/experiments``; None if it takes none."""

    def config_files(
        self,
        template: dict[str, Any],
        delivered: DeliveredVersion,
        contents: VersionContents,
        cluster: Cluster,
        *,
        where: str,
    ) -> tuple[ConfigFile, ...]:
        """The configs of a version, valid by the consumer's own rules.

        Those of a planned version are made to see whether something is refused, and not written.
        """

    def command(self, output: Path, names: Sequence[str], cluster: Cluster) -> str:
        """The command that submits the files of these names, which were written to a directory."""
