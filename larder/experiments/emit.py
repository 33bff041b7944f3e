"""The config files of a version, and writing those that changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from larder.errors import ConfigError, NotFoundError
from larder.experiments.delivery import ConfigFile
from larder.store import open_store
from larder.store.base import Store


@dataclass(frozen=True, slots=True)
class Written:
    """A config file; ``changed`` says whether it was written."""

    path: Path
    changed: bool


def write_configs(
    files: Iterable[ConfigFile], output_dir: Path, root: Store | None = None
) -> tuple[Written, ...]:
    """Write each file whose bytes differ from the existing file, completely or not at all.

    Those that belong into the storage are written to the dataset's ``root``, and are not returned.

    Raises:
        ConfigError: ``config.path``: a file of the user's own has a name of one of them.
    """
    output_dir = output_dir.absolute()
    store = open_store(str(output_dir))
    files = list(files)
    for file in files:
        if file.signature and not _begins(store, file.name, file.signature.encode()):
            hint = "rename it, and let a hook of yours source both"
            where = str(output_dir / file.name)
            raise ConfigError("config.path", "Larder did not make it", where=where, hint=hint)
    written = []
    for file in files:
        if file.in_storage:
            assert root is not None, "the consumer reads from the storage"
            _replace(root, file.name, file.text.encode())
        else:
            changed = _replace(store, file.name, file.text.encode())
            written.append(Written(output_dir / file.name, changed))
    return tuple(written)


def differing(files: Iterable[ConfigFile], output_dir: Path) -> tuple[Written, ...]:
    """The files that `write_configs` would write, because their bytes differ. Writes nothing."""
    output_dir = output_dir.absolute()
    store = open_store(str(output_dir))
    changed = [
        file
        for file in files
        if not file.in_storage and not _stands(store, file.name, file.text.encode())
    ]
    return tuple(Written(output_dir / file.name, changed=True) for file in changed)


def _begins(store: Store, key: str, signature: bytes) -> bool:
    try:
        return bytes(store.get(key)).startswith(signature)
    except NotFoundError:
        return True


def _replace(store: Store, key: str, data: bytes) -> bool:
    if _stands(store, key, data):
        return False
    store.put(key, data)
    return True


def _stands(store: Store, key: str, data: bytes) -> bool:
    try:
        return bool(store.get(key) == data)
    except NotFoundError:
        return False
