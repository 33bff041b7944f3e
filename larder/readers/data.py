"""A published version, as `larder.open` opens it for reading."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from larder.cache.cache_record import CacheFileFacts
from larder.cache.file import CacheFileReader, fetch_file, open_file
from larder.config.patterns import expand_braces
from larder.errors import ConfigError, DamageError
from larder.packages import require_module
from larder.readers.access import DatasetAccess, download_version
from larder.readers.batch_decoding import Decoding, Map
from larder.readers.cache_reader import CacheReader
from larder.readers.choice import choice_of
from larder.readers.epoch_order import epoch_words
from larder.readers.keep import KeptShards
from larder.readers.launcher import rank_of
from larder.readers.loader import Collate, Loader
from larder.readers.loader_workers import MOST_WORKERS
from larder.readers.numbers import Array
from larder.readers.options import (
    Batches,
    Check,
    Choice,
    Images,
    OnError,
    Reading,
    Shuffle,
)
from larder.readers.sagemaker import pipe_samples
from larder.readers.schedule import (
    check_function,
    check_list,
    choice,
    invalid,
    schedule_of,
    size_bytes,
    whole,
)
from larder.readers.sources import BatchSource, CacheSource, LeasedSource, ShardSource
from larder.readers.split import SplitSamples
from larder.samples.indexed import Sample
from larder.store import local_path, object_url
from larder.units import format_count, format_names
from larder.versions import layout
from larder.versions.documents import CacheFile, SplitFacts, VersionDocument
from larder.versions.omitted import Omitted, read_omitted
from larder.versions.version_copy import check_shards, copy_version, version_files

if TYPE_CHECKING:
    from larder.readers.keras import BatchSequence
    from larder.readers.torch import BatchDataset, SampleDataset

_NAMES = 10


class Data:
    """One version of a dataset. Keeps no connection open and may be pickled.

    Args:
        document: The version.
        access: Access to the dataset's root.
    """

    def __init__(self, document: VersionDocument, access: DatasetAccess) -> None:
        self._document = document
        self._access = access

    def __repr__(self) -> str:
        """Show dataset, version and splits."""
        return f"<larder.Data {self.dataset}@{self.version}: {', '.join(self.splits)}>"

    @property
    def dataset(self) -> str:
        """Name of the dataset."""
        return self._document.dataset

    @property
    def version(self) -> str:
        """ID of the version: 32 hex digits."""
        return self._document.id

    @property
    def digest(self) -> str:
        """Content digest, the same wherever the version was made."""
        return self._document.digest

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in the order of their numbers; empty without labels."""
        return self._document.classes

    def labels(self, split: str) -> Array:
        """Return the class number of each sample of a split, in order, or -1; int64.

        Reads the index of the split, but no shard.

        Raises:
            ConfigError: ``version.split``: unknown split.
            DamageError: A document or an index is damaged.
        """
        return self.samples_of(split).labels()

    def keys(self, split: str) -> list[str]:
        """Read the keys of a split's samples, in order, from its index; errors as in `labels`."""
        return self.samples_of(split).keys()

    @property
    def splits(self) -> Mapping[str, SplitFacts]:
        """Samples, shards and bytes of every split."""
        return dict(self._document.splits)

    def shards(self, split: str) -> list[str]:
        """List the shards of a split, in order: paths if the storage is a directory, else URLs.

        Raises:
            ConfigError: ``version.split``: unknown split; ``version.omitted``: the shards contain
                samples that the version omits.
        """
        facts = self._whole_split(split)
        store = self._access.store()
        check_shards(store, self._document, split)
        keys = [key for pattern in facts.patterns for key in expand_braces(pattern)]
        if store.features.local_path:
            return [str(local_path(store, key)) for key in keys]
        return [object_url(store.url, key) for key in keys]

    def samples(self, split: str, start: int = 0, stop: int | None = None) -> Iterator[Sample]:
        """Iterate over the samples of a split in order, from its shards; omitted ones are left out.

        Only the needed ranges of index and shards are read, and every part is compared with its
        CRC-32C. Samples in Parquet need the extra ``prepare``.

        Args:
            split: Name of the split.
            start: Number of the first sample, from 0.
            stop: Number after the last sample; None, or a larger number than the split has, to read
                to the end.

        Returns:
            An iterator over `larder.samples.indexed.Sample`: key, label and parts.

        Raises:
            ConfigError: ``version.split``: unknown split; ``config.invalid_value``: a negative
                number; while iterating, ``config.missing_package``.
            DamageError: At once or while iterating: a document, an index or a shard is damaged.
        """
        samples = self.samples_of(split)
        if min(start, stop or 0) < 0:
            message = f"there is no sample {min(start, stop or 0)}"
            raise ConfigError("config.invalid_value", message, where=self._where)
        return samples.between(start, len(samples) if stop is None else stop)

    def pipe(self, split: str, epoch: int = 0, *, wait_seconds: float = 10.0) -> Iterator[Sample]:
        """Iterate over the samples of a split from a SageMaker pipe, in WebDataset or RecordIO.

        One process of an instance can read a pipe, once and to its end. Shards may come in any
        order; their samples are compared with the index. A sample from RecordIO has its record's
        number as the key, and the part ``data``.

        Args:
            split: Name of the split and of the channel.
            epoch: How often the channel was read before: SageMaker has a pipe for each epoch.
            wait_seconds: Longest wait for the first bytes.

        Raises:
            ConfigError: ``version.split``: unknown split; while iterating, ``config.path``: there
                is no pipe; ``config.invalid_value``: another format.
            FatalError: While iterating: ``run.timeout``: no process writes to the pipe.
            DamageError: While iterating: ``damage.size``: the pipe ends too early;
                ``damage.record``: the content violates the format, or differs from the index.
        """
        return pipe_samples(self._document, self.samples_of(split), epoch, wait_seconds)

    def samples_of(
        self,
        split: str,
        *,
        keep: str | Path | None = None,
        keep_bytes: int | str | None = None,
        check: Check = "always",
    ) -> SplitSamples:
        """Return the samples of a split by number, from its shards, in the order of the version.

        Omitted samples are left out and have no numbers. Samples are read when they are used.
        Samples in Parquet need the extra ``prepare``.

        Args:
            split: Name of the split.
            keep: A directory for whole shards on a disk of this machine. A shard is downloaded when
                first needed, once for all processes of the machine, and compared with its digest.
                The directory may have other files, which are never removed, but must not belong to
                a storage. None reads the shards where they are.
            keep_bytes: Most bytes of the kept shards, such as ``"200 GB"``; the least recently used
                shards are removed. None for as many as the disk takes.
            check: Parts that are compared with their CRC-32C. ``always``: all parts that are read.
                ``once``: the parts of a sample that a process reads for the first time, or none of
                kept shards, whose digest was compared. ``never``: none.

        Returns:
            A sequence of `larder.samples.indexed.Sample`: key, label and parts. Its `batch` reads
            many at once. May be used by many threads and after a fork, and be pickled.

        Raises:
            ConfigError: ``version.split``: unknown split; ``config.invalid_value``: another check,
                a limit without a directory, or a shard that exceeds the limit; ``config.path``: the
                directory belongs to a storage.
        """
        self._split(split)
        if keep is None and keep_bytes is not None:
            raise invalid("there is no directory that it limits", "keep_bytes", "give keep, too")
        limit_bytes = None if keep_bytes is None else size_bytes(keep_bytes, "keep_bytes")
        kept = None if keep is None else KeptShards(keep, limit_bytes)
        return SplitSamples(self._document, split, self._access, check, kept)

    def download(self, directory: str | Path, splits: Sequence[str] | None = None) -> Path:
        """Download the shards of a version to ``DIRECTORY/SPLIT/NAME``, and ``classes.json``.

        Existing files are not downloaded again, so a new call continues a killed one. Call it in
        every rank: one process of a machine downloads, and the others wait. A file appears
        complete, after its digest was compared.

        Args:
            directory: Target directory; made if needed. May have other files, but not another
                version.
            splits: Names of the splits; all if None.

        Returns:
            The directory.

        Raises:
            ConfigError: ``version.split``: unknown split; ``version.omitted``: the shards contain
                samples that the version omits; ``config.path``: the directory has another version,
                or cannot be written.
            DamageError: ``damage.size``, ``damage.digest``: a shard differs from the published one.
            StoreError: ``store.full``: no space is left.
        """
        check_list(splits, "splits")
        names = list(self.splits if splits is None else splits)
        for split in names:
            self._whole_split(split)
        shards = {split: self.samples_of(split).shard_files() for split in names}
        target = Path(directory).expanduser()
        with self._access.cleaned_errors(self.version):
            download_version(self._access.store(), self._document, shards, target)
        return target

    def copy_to(self, directory: str | Path) -> Path:
        """Copy the version to a directory; the copy is read like the version itself.

        Shards, indexes and caches are copied to ``DIRECTORY/larder/DATASET``. Existing files are
        not copied again, so a new call continues a killed one. If several processes call it, one
        copies and the others wait. A file appears complete, after its digest was compared.

        Args:
            directory: Target directory; made if needed. May have other versions and other datasets.

        Returns:
            The address of the copy, for `larder.open`: ``DIRECTORY/larder/DATASET/versions/ID``.

        Raises:
            DamageError: ``damage.size``, ``damage.digest``: a file differs from the published one.
            StoreError: ``store.full``: no space is left.
            ConfigError: ``config.path``: the directory cannot be written.
        """
        store = self._access.store()
        root = Path(directory).expanduser() / layout.dataset_prefix(self.dataset)
        with self._access.cleaned_errors(self.version):
            copy_version(store, self._document, version_files(store, self._document), root)
        return root / layout.version_prefix(self.version)

    def loader(
        self,
        split: str,
        *,
        batch_size: int | Batches | None = None,
        shuffle: bool | Shuffle = False,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        choose: Choice | None = None,
        decode: bool | Collection[str] | Images = False,
        size: int | None = None,
        transforms: Mapping[str, Callable[[Any], Any]] | None = None,
        columns: Sequence[str] | None = None,
        map: Map | None = None,
        collate: Collate | None = None,
        workers: int | None = None,
        reading: Reading = Reading(),
    ) -> Loader:
        """Return the batches of a split for one rank, from its cache, or from its shards if none.

        Every epoch has one order of all samples. The order follows from the version, the split, the
        seed, the epoch and the kind of order. A batch is the next ``batch_size`` samples of the
        order, whatever the number of ranks; each rank has an equal part of every batch. So training
        resumes with the same batches on another number of ranks: `Loader.load_state_dict`.

        Args:
            split: Name of the split.
            batch_size: Samples of a batch, of all ranks together: a multiple of ``world``. A
                `larder.Batches` sets the size per rank, or the use of leftover samples.
            shuffle: Another order in every epoch; without it, the order of the version. A
                `larder.Shuffle` sets the kind of order.
            seed: At least 0.
            rank: Number of this process, from 0. Without ``rank`` and ``world``, torch.distributed
                tells both if initialised, else torchrun, mpirun, srun, SageMaker or Kubeflow. A
                process that none of them started is 0 of 1.
            world: Number of all processes that train together.
            choose: Which samples, how many, and how often: a `larder.Choice`; by default every
                sample once.
            decode: Decode images to arrays: all images, or the parts with these extensions. Arrays
                are named ``image``, whatever the extension; ``seg.png`` becomes ``image.seg``. A
                `larder.Images` names masks.
            size: Scale and crop images to squares with sides of this many pixels; see
                `larder.readers.batch_decoding.Decoding`. Not for a decoded cache, whose images are
                arrays.
            transforms: Functions by the name of a value. Each is called with one value, and the
                result takes its place.
            columns: The names that every batch has, also a part's extension; None for the names
                that its samples have. Parts without a name here are not read.
            map: A function of a sample and a ``numpy.random.Generator``. The sample is a dictionary
                of its values, decoded and transformed, with ``key`` and ``label``. The generator
                follows from seed, epoch and number of the sample; with ``weights``, also from how
                often the sample was drawn before. So results are the same for any number of ranks
                and workers, also after resuming. The dictionary that the function returns is the
                sample in the batch. Several threads call the function at once.
            collate: A function of the list of a batch's sample dictionaries, whose result is the
                batch; without it, arrays and tensors of one shape are stacked.
            workers: Processes that decode ahead into memory shared with this process. Their
                functions must be in a module that can be imported. 0 for threads of this process.
                The default is this process's share of the cores, less one. It is 0 for fewer than
                1,000 samples, for an iteration that takes two batches, without anything to decode,
                or for functions of the main script.
            reading: Options for kept shards, checks, errors and reading ahead: a `larder.Reading`.

        Raises:
            ConfigError: ``version.split``: unknown split; ``config.invalid_value``: a value outside
                its range, a batch that cannot be divided among the ranks, or launchers that
                contradict each other; ``config.missing_package``: decoding needs Pillow.
            LarderError: The cache cannot be read: see `cache`.
        """
        facts = self._split(split)
        check_function(collate, "collate")
        rank, world, said_by = rank_of(rank, world)
        samples = self._read_as(reading, split)
        memory = size_bytes(reading.memory_bytes, "memory_bytes")
        choice("on_error", reading.on_error, get_args(OnError))
        words = epoch_words(self.version, split, whole("seed", seed, 0), 0, "limit")
        choose = Choice() if choose is None else choose
        if not isinstance(choose, Choice):
            raise invalid(f"{choose!r} is no choice", "choose", "give a larder.Choice of it")
        batches = batch_size if isinstance(batch_size, Batches) else Batches(batch_size)
        schedule = schedule_of(
            (self.dataset, self.version, split),
            facts,
            choice_of(samples, self.classes, words, choose),
            batches,
            self._shuffle(shuffle, samples, reading),
            seed,
            world,
        )
        decoding = _decoding(decode, size, transforms, columns, map)
        source, decoding = self._source(samples, reading.check, decoding)
        if rank == 0 and reading.keep is None:
            source = LeasedSource(source, self._access, self.version)
        pin = None
        if reading.pin:
            require_module("torch", "torch")
            from larder.readers.torch import pinning

            pin = pinning()
        return Loader(
            source,
            schedule,
            samples,
            rank=rank,
            world=world,
            decode=decoding,
            memory_bytes=memory,
            on_error=reading.on_error,
            collate=collate,
            workers=None if workers is None else whole("workers", workers, 0, MOST_WORKERS),
            pin=pin,
            is_ranked=bool(said_by),
        )

    def torch(self, split: str, **options: Any) -> BatchDataset:
        """Return the batches of a split for PyTorch: an IterableDataset that makes its DataLoader.

        ``data.torch("train", batch_size=256).loader(num_workers=2)`` counts delivered batches, and
        resumes with any number of workers.

        Args:
            split: Name of the split.
            options: Options of `loader`.

        Raises:
            ConfigError: ``config.missing_package``: torch is not installed; or as in `loader`.
        """
        require_module("torch", "torch")
        from larder.readers.torch import BatchDataset

        return BatchDataset(self.loader(split, **options))

    def torch_samples(
        self,
        split: str,
        *,
        decode: bool | Collection[str] | Images = False,
        size: int | None = None,
        transforms: Mapping[str, Callable[[Any], Any]] | None = None,
        columns: Sequence[str] | None = None,
        reading: Reading = Reading(),
    ) -> SampleDataset:
        """Open the samples of a split by number for PyTorch, as a map-style Dataset.

        Use it for samplers of your own; DataLoader reads a batch at once. Arguments and errors are
        as in `loader`. ``map`` is missing, because its random numbers follow from the epoch:
        call such a function in ``collate_fn``.
        """
        require_module("torch", "torch")
        from larder.readers.torch import SampleDataset

        samples = self._read_as(reading, split)
        decoding = _decoding(decode, size, transforms, columns)
        source, decoding = self._source(samples, reading.check, decoding)
        return SampleDataset(source, len(samples), decoding)

    def tf(self, split: str, *, columns: Sequence[str] | None = None, **options: Any) -> Any:
        """Return the batches of a split as a ``tf.data.Dataset``.

        Args:
            split: Name of the split.
            columns: Names of an element's values, in order, for a tuple; also names that ``map`` or
                ``collate`` makes. None for a dictionary of all values.
            options: Options of `loader`.

        Raises:
            ConfigError: ``config.missing_package``: TensorFlow is not installed;
                ``config.invalid_value``: a column does not exist, or has several shapes or types;
                or as in `loader`.
            LarderError: The first batch cannot be read or decoded.
        """
        require_module("tensorflow", "tensorflow")
        from larder.readers.tf import counted_dataset

        return counted_dataset(self.loader(split, **_reading(columns, options)), columns)

    def keras(
        self,
        split: str,
        *,
        columns: Sequence[str] | None = None,
        max_queue_size: int | None = None,
        **options: Any,
    ) -> BatchSequence:
        """Return the batches of a split as a ``keras.utils.PyDataset``, for ``model.fit``.

        Args:
            split: Name of the split.
            columns: Names of the values for Keras, in order, such as ``("image", "label")``; also
                names that ``map`` or ``collate`` makes. None for a dictionary of all values.
            max_queue_size: Batches that are read ahead; by default two for each process, at least
                10.
            options: Options of `loader`.

        Raises:
            ConfigError: ``config.missing_package``: Keras is not installed; or as in `loader`.
        """
        require_module("tensorflow", "keras")
        from larder.readers.keras import BatchSequence

        return BatchSequence(
            self.loader(split, **_reading(columns, options)), columns, max_queue_size
        )

    def cache(self, split: str, *, verify: bool = False, check_records: bool = True) -> CacheReader:
        """Open the cache of a split; its files are downloaded first unless they are in a directory.

        Args:
            split: Name of the split.
            verify: Read the files and compare their sha256 first, even if they were verified when
                they were downloaded.
            check_records: Compare each record that is read with its CRC-32C.

        Raises:
            ConfigError: ``version.split``: unknown split; ``cache.missing``: the split has none.
            DamageError: ``damage.size``, ``damage.digest``, ``damage.manifest``: a file is damaged.
            FatalError: ``cache.format``: another format, or another release line of LMDB.
            StoreError: ``store.full``: no space is left for a download.
        """
        files = self._files(split)
        readers: list[CacheFileReader] = []
        with ExitStack() as opened:
            store = self._access.store()
            with self._access.cleaned_errors(self.version):
                omitted = read_omitted(store, self._document)
                for file in files:
                    place = layout.place_of_cache_file(file.path)
                    facts = CacheFileFacts(
                        file.bytes, file.sha256, file.digest, file.records, place
                    )
                    path = fetch_file(store, file.path, facts, self._access.cache_dir)
                    reader = open_file(path, facts, verify=verify, check_records=check_records)
                    readers.append(opened.enter_context(closing(reader)))
            gone = [omitted.get((file.segment, split), Omitted.none()) for file in files]
            records, samples = CacheReader(readers, gone), self._split(split).samples
            if len(records) != samples:
                message = f"the cache of split {split} has {len(records):,} of {samples:,} samples"
                raise DamageError("damage.manifest", message, where=self._where)
            opened.pop_all()
        return records

    def _read_as(self, reading: Reading, split: str) -> SplitSamples:
        if not isinstance(reading, Reading):
            raise invalid(f"{reading!r} is no larder.Reading", "reading", "give a larder.Reading")
        keep, keep_bytes, check = reading.keep, reading.keep_bytes, reading.check
        return self.samples_of(split, keep=keep, keep_bytes=keep_bytes, check=check)

    def _shuffle(self, given: bool | Shuffle, samples: SplitSamples, reading: Reading) -> Shuffle:
        """Return the given order, or the default order of this split."""
        if not isinstance(given, bool | np.bool_ | Shuffle):
            raise invalid(f"{given!r} is no shuffle", "shuffle", "give True or a larder.Shuffle")
        if not given:
            return Shuffle("sequential")
        shuffle = given if isinstance(given, Shuffle) else Shuffle()
        if shuffle.kind not in (None, "full"):
            choice("shuffle", shuffle.kind, ("full", "window"))
            return shuffle
        # A cache decides alone: has_shards_local reads the index of every segment, which has to
        # have the samples that are shuffled.
        cached = self._document.cache_files(samples.split)
        at_once = bool(cached) or (reading.keep is None and samples.has_shards_local)
        return replace(shuffle, kind=shuffle.kind or ("full" if at_once else "window"))

    def _source(
        self, samples: SplitSamples, check: Check, decoding: Decoding
    ) -> tuple[BatchSource, Decoding]:
        """Open the source of a split's samples, and complete the decoding; refuse unknown names.

        The source reads only the parts that are used. The decoding gets the version's masks.
        """
        cache = self._document.cache if self._document.cache_files(samples.split) else None
        source: ShardSource | CacheSource = ShardSource(samples)
        if cache is not None:
            once, always = check == "once", check == "always"
            records = self.cache(samples.split, verify=once, check_records=always)
            source = CacheSource(records)
        if decoding == Decoding():
            return source, decoding
        as_files = decoding.images and (cache is None or cache.kind == "encoded")
        rules = (samples.uses, samples.max_pixels) if as_files else ()
        decoding = decoding.checked(source.names, *rules)
        if decoding.columns is not None:
            source = source.of(decoding.reads(source.names))
        return source, decoding

    def _split(self, split: str) -> SplitFacts:
        if split not in self._document.splits:
            message = f"there is no split {split!r}"
            hint = f"the splits are: {_listed(self._document.splits)}"
            raise ConfigError("version.split", message, where=self._where, hint=hint)
        return self._document.splits[split]

    def _files(self, split: str) -> tuple[CacheFile, ...]:
        self._split(split)
        files = self._document.cache_files(split)
        if not files:
            hint = "add cache to the dataset file and prepare it again"
            if self._document.cache:
                hint = f"the splits with a cache are: {_listed(self._document.cache.splits)}"
            message = f"there is no cache of split {split!r}"
            raise ConfigError("cache.missing", message, where=self._where, hint=hint)
        return files

    def _whole_split(self, split: str) -> SplitFacts:
        """Refuse a split whose shards contain samples that the version omits."""
        facts = self._split(split)
        if facts.omitted:
            count = format_count(facts.omitted, "sample")
            message = f"the shards of split {split!r} contain {count} that the version omits"
            hint = "read with samples() or from a cache, or run `larder compact`"
            raise ConfigError("version.omitted", message, where=self._where, hint=hint)
        return facts

    @property
    def _where(self) -> str:
        return f"{self._access.root}@{self.version}"


def _reading(columns: Sequence[str] | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a loader that reads only the columns for a framework.

    All columns are read if functions of the user make the columns.
    """
    is_made = options.get("map") or options.get("collate")
    return options if is_made else {"columns": columns, **options}


def _decoding(
    decode: bool | Collection[str] | Images,
    size: int | None,
    transforms: Mapping[str, Callable[[Any], Any]] | None,
    columns: Sequence[str] | None,
    map: Map | None = None,
) -> Decoding:
    images = decode if isinstance(decode, Images) else Images(decode)
    return Decoding(
        images.parts, size, transforms or {}, columns=columns, masks=images.masks, map=map
    )


def _listed(names: Iterable[str]) -> str:
    return format_names(sorted(names), _NAMES)
