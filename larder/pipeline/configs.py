"""The emit step: renders the configs of a version, and writes configs whose bytes differ.

`emit` does so for a published version, without preparing anything.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from larder.disk import disk_errors, read_file, write_file
from larder.errors import ConfigError, NotFoundError, StoreError
from larder.experiments.consumers.determined.companions import check_context
from larder.experiments.consumers.registry import consumer_of
from larder.experiments.delivery import (
    Advice,
    ConfigFile,
    ConfigRequest,
    DeliveredSplit,
    DeliveredVersion,
    VersionContents,
)
from larder.manifest.sealed import StoredFile
from larder.pipeline.delivery_facts import chosen, split_prefixes, version_choices
from larder.pipeline.settings import Settings
from larder.progress import NullProgress, Progress
from larder.segments.stores import root_url, storage_of
from larder.store import object_url, open_store
from larder.store.base import Store
from larder.store.own_files import published_file_errors
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.leases import CONFIG_DAYS, Claim, Lease, config_name
from larder.versions.omitted import read_omitted
from larder.versions.tags import published_version
from larder.versions.version_copy import check_shards, copy_version, read_listed, version_files


def location(settings: Settings, version: str) -> str:
    root = root_url(settings.dataset.name, settings.cluster)
    return object_url(root, layout.version_prefix(version)).rstrip("/")


def check_configs(
    settings: Settings,
    version: str,
    delivery: Advice,
    splits: Mapping[str, DeliveredSplit],
    *,
    writes: bool,
) -> None:
    """Refuse a version whose configs would be refused, before it costs anything."""
    _check_output(settings.output, writes=writes)
    contents = VersionContents("", splits, index=(layout.version_key(version),))
    _config_files(settings, version, delivery, contents)


def _config_files(
    settings: Settings, version: str, delivery: Advice, contents: VersionContents
) -> tuple[ConfigFile, ...]:
    cluster = settings.cluster
    place = DeliveredVersion(
        dataset=settings.dataset.name,
        version=version,
        location=location(settings, version),
        root=root_url(settings.dataset.name, cluster),
        storage_url=cluster.storage.url,
        delivery=delivery,
        replaces=settings.replaces,
    )
    request = ConfigRequest(settings.template, place, contents, cluster, settings.template_name)
    return consumer_of(cluster).config_files(request)


def _copy_data(
    settings: Settings, version: VersionDocument, configs: Sequence[ConfigFile], mark: ConfigFile
) -> None:
    """Copy a version into the folder of its mark; the caller writes the mark afterwards."""
    path = settings.output / mark.name
    root = path.parent / layout.dataset_prefix(version.dataset)
    store = storage_of(settings.dataset, settings.cluster)
    files = list(version_files(store, version))
    place = root.relative_to(settings.output)
    sizes = {(place / file.path).as_posix(): file.bytes for file in files}
    sizes |= {file.name: len(file.text.encode()) for file in configs}
    limit_bytes = settings.cluster.consumer.limits.context_bytes
    check_context(sizes, settings.output, limit_bytes, replaced=place.as_posix())
    with disk_errors(path):
        present = read_file(path).decode() if path.exists() else None
        if present is None and root.exists():
            message, hint = "Larder did not make it", "choose another directory with --output"
            raise ConfigError("config.path", message, where=str(root), hint=hint)
        if present != mark.text:
            write_file(path, b"")
            shutil.rmtree(root, ignore_errors=True)
    copy_version(store, version, files, root)


def _rendered(settings: Settings, version: VersionDocument) -> tuple[ConfigFile, ...]:
    offered = version_choices(settings, version)
    delivery = chosen(settings.dataset, settings.cluster, offered)
    lists = {layout.undigested_name(file.path): file.path for file in version.files_of("list")}
    cache = version.cache
    root = storage_of(settings.dataset, settings.cluster)
    for split in version.splits:
        check_shards(root, version, split)
    contents = VersionContents(
        digest=version.digest,
        splits={
            name: DeliveredSplit(
                facts.samples,
                facts.shards,
                facts.bytes,
                facts.patterns,
                lists.get(name),
                split_prefixes(name, facts.patterns, version.segments),
                _indexes(version, name),
            )
            for name, facts in version.splits.items()
        },
        classes=len(version.classes) if settings.dataset.labels else None,
        cache={split: tuple(file.path for file in files) for split, files in cache.splits.items()}
        if cache
        else None,
        index=tuple(_index(version)),
        class_names=version.classes,
        shard_files=partial(_shard_files, settings, version),
    )
    return _config_files(settings, version.id, delivery, contents)


def _indexes(version: VersionDocument, split: str) -> dict[str, str]:
    paths = [file.path for file in version.files_of("readers")]
    kinds = [path.split("/")[-2] for path in paths]
    return {
        kind: path
        for kind, path in zip(kinds, paths, strict=True)
        if path == layout.split_index_key(version.id, kind, split)
    }


def _index(version: VersionDocument) -> Iterator[str]:
    yield layout.version_key(version.id)
    yield from (layout.segment_key(use.id) for use in version.segments)
    roles = ("rows", "omitted", "classes")
    yield from (file.path for file in version.files if file.role in roles)


def _shard_files(settings: Settings, version: VersionDocument) -> dict[str, list[StoredFile]]:
    root = storage_of(settings.dataset, settings.cluster)
    files: dict[str, list[StoredFile]] = {}
    for shard in read_listed(root, version.files, read_omitted(root, version)):
        files.setdefault(shard.split, []).extend(shard.files)
    return files


def emit_configs(
    settings: Settings, version: VersionDocument, *, progress: Progress, renew: bool = False
) -> tuple[Written, ...]:
    """Render, validate and write the configs of a version.

    If a config changes, or with ``renew``, the version gets a lease.
    """
    progress.start("emit")
    with published_file_errors():
        configs = _rendered(settings, version)
        changed = differing(configs, settings.output)
        for mark in (file for file in configs if file.with_data):
            _copy_data(settings, version, configs, mark)
        root = storage_of(settings.dataset, settings.cluster)
        if renew or changed:
            _lease(settings, root, version)
        written = write_configs(configs, settings.output, root)
    progress.finish("emit")
    return written


def _lease(settings: Settings, root: Store, version: VersionDocument) -> None:
    """Keep a version that a config names from being cleaned for a while."""
    cluster = settings.cluster.name
    lease = Lease(f"the config of cluster {cluster}", CONFIG_DAYS, (version.id,))
    name = config_name(cluster, version.id)
    try:
        Claim(lease, (layout.version_key(version.id),), name).take(root)
    except StoreError as error:
        if error.code != "store.denied":
            raise


def pending_configs(settings: Settings, version: VersionDocument) -> tuple[Written, ...]:
    """Return the configs of a version that `emit_configs` would write. Writes nothing."""
    with published_file_errors():
        return differing(_rendered(settings, version), settings.output)


def submit_command(settings: Settings, configs: Sequence[Written]) -> str:
    names = [config.path.relative_to(settings.output).as_posix() for config in configs]
    return consumer_of(settings.cluster).command(settings.output, names, settings.cluster)


def _check_output(output: Path, *, writes: bool = False) -> None:
    """Refuse an output directory that cannot exist, or that ``writes`` could not change."""
    nearest = next(path for path in (output, *output.parents) if os.path.lexists(path))
    usable = os.access(nearest, os.X_OK | (os.W_OK if writes else 0))
    if not (usable and os.path.isdir(nearest)):
        message = "not writable" if os.path.isdir(nearest) else "not a directory"
        hint = "choose another directory with --output"
        raise ConfigError("config.path", message, where=str(nearest), hint=hint)


def emit(settings: Settings, name: str) -> dict[str, Any]:
    """Write the configs of a version like the last stage of a run; return a JSON document.

    ``name`` is the ID of the version, at least four of its first digits, or a tag.
    """
    store = storage_of(settings.dataset, settings.cluster)
    version = published_version(store, settings.dataset.name, name)
    written = emit_configs(settings, version, progress=NullProgress(), renew=True)
    return {
        "dataset": settings.dataset.name,
        "version": version.id,
        "location": location(settings, version.id),
        "configs": [{"path": str(file.path), "changed": file.changed} for file in written],
        "replaced": [place for file in written for place in file.replaced],
        "command": submit_command(settings, written),
    }


def emit_lines(document: Mapping[str, Any]) -> list[str]:
    states = {True: "written", False: "current"}
    return [
        f"{document['dataset']} version {document['version']}",
        f"  at       {document['location']}",
        *(f"  config   {each['path']} ({states[each['changed']]})" for each in document["configs"]),
        *(f"  replaced {place}, which the template has" for place in document["replaced"]),
        *([f"  submit   {document['command']}"] if document["command"] else ()),
    ]


class Written(NamedTuple):
    """A config file; ``changed`` says whether it was written, ``replaced`` as in `ConfigFile`."""

    path: Path
    changed: bool
    replaced: tuple[str, ...] = ()


def write_configs(
    files: Sequence[ConfigFile], output_dir: Path, root: Store | None = None
) -> tuple[Written, ...]:
    """Write each file whose bytes differ from the existing file, completely or not at all.

    Files that belong into the storage are written to the dataset's ``root``, and are not returned.
    ``config.path``: a file of the user has the name of a file to write.
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
    for file in files:
        if not file.text:
            continue
        place = root if file.in_storage else store
        assert place is not None, "the consumer reads from the storage"
        if changed := not _stands(place, file):
            place.put(file.name, file.text.encode())
        if not file.in_storage:
            written.append(Written(output_dir / file.name, changed, file.replaced))
    return tuple(written)


def differing(files: Iterable[ConfigFile], output_dir: Path) -> tuple[Written, ...]:
    """List the files that `write_configs` would write, because their bytes differ.

    ``config.path``: the directory cannot be used for them.
    """
    output_dir = output_dir.absolute()
    _check_output(output_dir)
    store = open_store(str(output_dir))
    changed = [
        file for file in files if file.text and not file.in_storage and not _stands(store, file)
    ]
    _check_output(output_dir, writes=bool(changed))
    return tuple(Written(output_dir / file.name, changed=True) for file in changed)


def _stands(store: Store, file: ConfigFile) -> bool:
    try:
        return bool(store.get(file.name) == file.text.encode())
    except NotFoundError:
        return False
