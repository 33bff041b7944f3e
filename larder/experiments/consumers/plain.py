"""Plain JSON, for consumers that Larder does not know: all facts and addresses of a version."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from larder.config.models.cluster import Cluster
from larder.experiments.delivery import ConfigFile, ConfigRequest

DELIVERIES: tuple[str, ...] = ("bucket", "bind_mount")
TEMPLATE: str | None = None


def config_files(request: ConfigRequest) -> tuple[ConfigFile, ...]:
    """Make ``dataset.json``; no shards are named if the version omits samples of them."""
    delivered, contents = request.delivered, request.contents
    root = delivered.root.removeprefix("file://")
    files = contents.shard_files() if delivered.delivery.shards else {}
    document = {
        "dataset": delivered.dataset,
        "version": delivered.version,
        "digest": contents.digest,
        "location": delivered.location.removeprefix("file://"),
        "classes": list(contents.class_names),
        "splits": {
            name: {
                "samples": split.samples,
                "bytes": split.bytes,
                "files": [
                    {"url": f"{root}{file.path}", "bytes": file.bytes, "sha256": file.sha256}
                    for file in files.get(name, ())
                ],
            }
            for name, split in sorted(contents.splits.items())
        },
        "cache": {
            name: [f"{root}{path}" for path in paths]
            for name, paths in sorted((contents.cache or {}).items())
        },
    }
    return (ConfigFile("dataset.json", to_json(document)),)


def command(output: Path, names: Sequence[str], cluster: Cluster) -> str:
    return ""


def to_json(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
