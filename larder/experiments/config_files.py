"""The config files of a version; only changed files are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from larder.errors import ConfigError, NotFoundError
from larder.experiments.delivery import ConfigFile
from larder.store import open_store
from larder.store.base import Store


@dataclass(frozen=True, slots=True)
class Written:
    """A config file; ``changed`` says whether it was written, ``replaced`` as in `ConfigFile`."""

    path: Path
    changed: bool
    replaced: tuple[str, ...] = ()


def write_configs(
    files: Sequence[ConfigFile], output_dir: Path, root: Store | None = None
) -> tuple[Written, ...]:
    """Write each file whose bytes differ from the existing file, completely or not at all.

    Files that belong into the storage are written to the dataset's ``root``, and are not returned.

    Raises:
        ConfigError: ``config.path``: a file of the user has the name of a file to write.
    """
    output_dir = output_dir.absolute()
    store = open_store(str(output_dir))
    signed = [file for file in files if file.signature and (output_dir / file.name).exists()]
    own = [file for file in signed if store.get(file.name).startswith(file.signature.encode())]
    for file in signed:
        if file.text and file not in own:
            where, hint = str(output_dir / file.name), "rename it, and let a hook source both"
            raise ConfigError("config.path", "Larder did not make it", where=where, hint=hint)
    for file in own:
        if not file.text:
            store.delete(file.name)
    written = []
    for file in _to_write(files):
        if file.in_storage:
            assert root is not None, "the consumer reads from the storage"
            _replace(root, file.name, file.text.encode())
        else:
            changed = _replace(store, file.name, file.text.encode())
            written.append(Written(output_dir / file.name, changed, file.replaced))
    return tuple(written)


def differing(files: Iterable[ConfigFile], output_dir: Path) -> tuple[Written, ...]:
    """List the files that `write_configs` would write, because their bytes differ."""
    output_dir = output_dir.absolute()
    store = open_store(str(output_dir))
    changed = [
        file
        for file in _to_write(files)
        if not file.in_storage and not _stands(store, file.name, file.text.encode())
    ]
    return tuple(Written(output_dir / file.name, changed=True) for file in changed)


def _to_write(files: Iterable[ConfigFile]) -> Iterator[ConfigFile]:
    return (file for file in files if file.text)


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
