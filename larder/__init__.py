"""Larder: training data, prepared once and verifiably, and read from where training runs.

::

    import larder

    data = larder.open("s3://bucket/larder/imagenet@latest")
    for batch in data.loader("train", batch_size=256, shuffle=True, seed=7):
        ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import Any

    from larder import errors
    from larder.datalayer.decorators import cache_train_dataset, cache_validation_dataset
    from larder.errors import LarderError
    from larder.readers.data import Data
    from larder.readers.loader import Loader
    from larder.readers.mix import Mix
    from larder.readers.options import Batches, By, Choice, Images, Reading, Shuffle

__all__ = [
    "Batches",
    "Choice",
    "Images",
    "LarderError",
    "Reading",
    "Shuffle",
    "__version__",
    "cache_train_dataset",
    "cache_validation_dataset",
    "errors",
    "mix",
    "open",
    "prepare",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import decorators, options and errors when they are used: importing larder stays fast."""
    if name in ("LarderError", "errors"):
        errors = import_module("larder.errors")
        return errors if name == "errors" else errors.LarderError
    if name in ("cache_train_dataset", "cache_validation_dataset"):
        from larder.datalayer import decorators

        return getattr(decorators, name)
    if name in ("Batches", "Choice", "Images", "Reading", "Shuffle"):
        from larder.readers import options

        return getattr(options, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open(
    url: str | Path | None = None,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    cache_dir: str | Path | None = None,
) -> Data:
    """Open a version of a dataset for reading.

    Args:
        url: ``ROOT/larder/DATASET@TAG`` or ``...@VERSION`` (32 hex digits, or at least four of the
            first), without ``@`` for the tag ``latest``; or
            ``ROOT/larder/DATASET/versions/VERSION``. ROOT is a URL of a store or a local path. None
            for the version in the config of the running job, if preparing wrote the config: a trial
            of Determined, a training job of SageMaker, or a container with ``LARDER_LOCATION``.
        endpoint: URL of an S3-compatible server other than AWS.
        region: Region of the bucket.
        profile: Profile in the AWS credentials file.
        cache_dir: Directory for cache files from a bucket; by default ``$LARDER_CACHE_DIR`` or
            ``~/.cache/larder``. Caches in a directory are read in place.

    Raises:
        ConfigError: ``version.missing``: no such dataset, tag or version; ``version.ambiguous``:
            several versions begin with these digits; ``config.invalid_value``: another form of URL;
            ``config.missing_variable``: no URL, and not in a job with a config of Larder.
        StoreError: The store refuses the request, or cannot be reached.
        DamageError: The version document is damaged.
    """
    # Imported here, so that importing larder stays fast.
    from larder.readers.address import open_data

    return open_data(
        None if url is None else str(url),
        endpoint=endpoint,
        region=region,
        profile=profile,
        cache_dir=cache_dir,
    )


def mix(
    loaders: Iterable[tuple[Loader, float]],
    *,
    seed: int = 0,
    batches: int | None = None,
    by: By = "batch",
) -> Mix:
    """Mix several loaders into a single loader, in proportion to their weights.

    Each loader has a share of an epoch's batches or samples by its weight, in whole numbers. The
    random order depends on the seed and the epoch's number alone. A loader whose own epoch
    ends first continues with its next epoch, also within a batch and whatever its ``even`` is. A
    mix is resumed like any loader, also with another number of ranks; workers divide its batches.

    Args:
        loaders: Loaders as they were made, of the same rank, ``batch_size``, ``on_error`` and
            ``collate``, and the weight of each: any numbers above 0. Each decodes its own samples.
            The mix uses the largest ``memory_bytes`` and ``workers`` of its loaders.
        seed: At least 0.
        batches: Batches of an epoch; by default the sum over the epochs of all loaders.
        by: ``batch``: a batch is of one loader. ``sample``: a batch has samples of several.

    Raises:
        ConfigError: ``config.invalid_value``: no loader, or one twice; loaders of different ranks
            or options, or with different classes for one label; a weight, a seed or a number of
            batches outside its range; or an epoch is too short for the weight of a loader.
    """
    from larder.readers.mix import Mix

    return Mix(loaders, seed=seed, batches=batches, by=by)


def prepare(
    dataset: str,
    cluster: str = "local",
    *,
    config_dir: str | Path = "configs",
    settings: Sequence[str] = (),
    output: str | Path | None = None,
) -> dict[str, Any]:
    """Prepare a dataset in this process, without an orchestrator.

    Needs the extra ``prepare``.

    Args:
        dataset: Name of a file in ``config_dir/datasets``.
        cluster: Name of a file in ``config_dir/clusters``.
        config_dir: The directory with all configuration files.
        settings: ``key.path=value`` pairs that override fields.
        output: Directory for configs; ``out/CLUSTER/DATASET`` by default.

    Returns:
        The JSON document of the run, which `larder prepare --json` prints.

    Raises:
        ConfigError: ``config.missing_package``: packages that preparing needs are not installed;
            other codes: the configuration is invalid or refused.
        LarderError: Any other failure; nothing is published in part.
    """
    from pathlib import Path

    from larder.packages import require

    require("prepare")
    from larder.pipeline.preparing import prepare as run
    from larder.pipeline.settings import load_settings

    where = Path(output) if output else None
    return run(
        load_settings(
            dataset, cluster, config_dir=Path(config_dir), settings=settings, output=where
        )
    )
