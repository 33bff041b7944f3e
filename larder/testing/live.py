"""Copies between two real cloud accounts with both engines, and reports times and prices.

``make live`` runs this. It costs money: it starts only if all of these variables are set, and stops
before it starts if it may cost more than the cap::

    LARDER_LIVE_SOURCE             s3://BUCKET/PREFIX, where it writes a generated dataset
    LARDER_LIVE_SOURCE_REGION      the bucket's region
    LARDER_LIVE_TARGET             gs://BUCKET/PREFIX, where it copies that dataset
    LARDER_LIVE_TARGET_REGION      the bucket's region
    LARDER_LIVE_EGRESS_USD_PER_GB  what the source's provider charges to send 10^9 bytes out
    LARDER_LIVE_MAX_USD            the cap

and, if they are needed: LARDER_LIVE_PROJECT (the Google Cloud project), LARDER_LIVE_BYTES (default
20 GB), LARDER_LIVE_ENGINES (default ``native,skyplane``), LARDER_LIVE_SOURCE_ENDPOINT and
LARDER_LIVE_TARGET_ENDPOINT (of servers other than the providers' own).

Both prefixes belong to it alone: it refuses one that has objects, and empties them when it ends.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

from larder.config.urls import parse_url
from larder.errors import ConfigError, LarderError
from larder.limits import ByteBudget
from larder.progress import NullProgress
from larder.store import open_store
from larder.store.access import Access
from larder.store.base import ObjectInfo
from larder.store.s3.account import S3Bucket
from larder.store.s3.uploads import abort_uploads, list_uploads
from larder.transfer.adopt import adopt
from larder.transfer.copy import Copy
from larder.transfer.engines.limits import CopyLimits
from larder.transfer.engines.native import copy_batch
from larder.transfer.engines.skyplane import (
    SkyplaneLimits,
    SkyplanePlace,
    check_skyplane,
    run_skyplane,
)
from larder.transfer.engines.skyplane_cost import SkyplaneCost, predict
from larder.units import format_bytes, format_seconds, parse_bytes

__all__ = ["Live", "Result", "main", "settings_of"]

_REQUIRED = (
    "SOURCE",
    "SOURCE_REGION",
    "TARGET",
    "TARGET_REGION",
    "EGRESS_USD_PER_GB",
    "MAX_USD",
)
_OPTIONAL = ("PROJECT", "BYTES", "ENGINES", "SOURCE_ENDPOINT", "TARGET_ENDPOINT")
_ENGINES = ("native", "skyplane")
_NATIVE_BYTES_PER_SECOND = 100e6
_REQUESTS_USD = 1.5 * 0.0054 / 1000
"""Of one object at each side, rounded up: PUT and GET at AWS's list prices of 2026."""
_SMALL_BYTES = 100_000
_LARGE_BYTES = 1_000_000_000
_SMALL_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Live:
    """What a run does.

    Attributes:
        source: Where the dataset is written.
        source_access: How it is reached.
        target: Where it is copied, in a folder for each engine.
        target_access: How it is reached.
        egress_usd_per_gb: Price of 10^9 bytes that leave the source.
        max_usd: The cap.
        total_bytes: Size of the dataset.
        engines: Which copy, in this order.
    """

    source: str
    source_access: Access
    target: str
    target_access: Access
    egress_usd_per_gb: float
    max_usd: float
    total_bytes: int
    engines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """How one engine did.

    Attributes:
        engine: Its name.
        status: ``done``, or what Skyplane said when it failed.
        predicted_seconds: Before.
        seconds: Measured, with all verification.
        predicted_usd: Before.
        usd: From the bytes and machine hours that were measured, at list prices: not the bill.
        vm_hours: Of all machines.
        copied_natively: Objects that the native engine copied.
        objects: All objects; each was compared with its source.
    """

    engine: str
    status: str
    predicted_seconds: float
    seconds: float
    predicted_usd: float
    usd: float
    vm_hours: float
    copied_natively: int
    objects: int


def settings_of(environment: Mapping[str, str]) -> Live:
    """Read the variables.

    Raises:
        ConfigError: Some are missing, or invalid.
    """
    given = {name: environment.get(f"LARDER_LIVE_{name}", "") for name in (*_REQUIRED, *_OPTIONAL)}
    missing = [f"LARDER_LIVE_{name}" for name in _REQUIRED if not given[name]]
    if missing:
        message = f"not set: {', '.join(missing)}"
        hint = "see docs/how-to/skyplane.md: this costs money"
        raise ConfigError("config.missing_variable", message, where="make live", hint=hint)
    for name in ("SOURCE", "TARGET"):
        url = parse_url(given[name])
        if url.scheme not in ("s3", "gs") or not url.prefix.strip("/"):
            message = "not a bucket with a prefix of its own, such as s3://bucket/larder-live"
            raise ConfigError("config.invalid_value", message, where=f"LARDER_LIVE_{name}")
    engines = tuple((given["ENGINES"] or ",".join(_ENGINES)).split(","))
    if not set(engines) <= set(_ENGINES):
        raise ConfigError("config.invalid_value", "no such engine", where="LARDER_LIVE_ENGINES")
    return Live(
        source=given["SOURCE"].rstrip("/"),
        source_access=_access(given, "SOURCE"),
        target=given["TARGET"].rstrip("/"),
        target_access=_access(given, "TARGET"),
        egress_usd_per_gb=_number(given, "EGRESS_USD_PER_GB", float),
        max_usd=_number(given, "MAX_USD", float),
        total_bytes=int(_number({"BYTES": given["BYTES"] or "20 GB"}, "BYTES", parse_bytes)),
        engines=engines,
    )


def _access(given: Mapping[str, str], side: str) -> Access:
    return Access(
        endpoint=given[f"{side}_ENDPOINT"] or None,
        region=given[f"{side}_REGION"],
        project=given["PROJECT"] or None,
    )


def _number(given: Mapping[str, str], name: str, parse: Callable[[str], float]) -> float:
    try:
        value = parse(given[name])
    except ValueError as error:
        where = f"LARDER_LIVE_{name}"
        raise ConfigError("config.invalid_value", str(error), where=where) from None
    if not 0 <= value < float("inf"):
        raise ConfigError("config.invalid_value", "out of range", where=f"LARDER_LIVE_{name}")
    return value


class _Run:
    """One run, in folders of its own below both prefixes."""

    def __init__(self, live: Live, say: Callable[[str], None]) -> None:
        self._live = live
        self._say = say
        self._limits = SkyplaneLimits()
        self._source_url = f"{live.source}/data"
        self._source = open_store(self._source_url, access=live.source_access)

    def run(self) -> list[Result]:
        """Generate, copy with each engine, and clean up whatever happened."""
        live = self._live
        self._check_empty()
        self._check_cost()
        try:
            self._generate()
            return [self._copied(engine) for engine in live.engines]
        finally:
            self._clean()

    def predicted(self, engine: str) -> tuple[float, float]:
        """Seconds and US dollars that an engine will probably need."""
        live = self._live
        requests_usd = _REQUESTS_USD * 3 * len(_sizes(live.total_bytes))
        if engine == "native":
            seconds = live.total_bytes / _NATIVE_BYTES_PER_SECOND
            return seconds, live.egress_usd_per_gb * live.total_bytes / 1e9 + requests_usd
        cost = self._skyplane_cost()
        return cost.seconds, cost.usd + requests_usd

    def _skyplane_cost(self) -> SkyplaneCost:
        live = self._live
        return predict(
            (parse_url(live.source).scheme, parse_url(live.target).scheme),
            total_bytes=live.total_bytes,
            egress_usd_per_gb=live.egress_usd_per_gb,
            max_instances=self._limits.max_instances,
            most_seconds=self._limits.most_seconds,
        )

    def _check_empty(self) -> None:
        """Refuse prefixes with objects, which the end of the run would delete."""
        live = self._live
        for url, access in ((live.source, live.source_access), (live.target, live.target_access)):
            if next(iter(open_store(url, access=access).list()), None):
                message = "it has objects, and this would delete them"
                hint = "name a prefix that nothing else uses"
                raise ConfigError("config.invalid_value", message, where=url, hint=hint)

    def _check_cost(self) -> None:
        """Refuse a run that may cost more than the cap.

        Every byte may be sent twice by Skyplane (it may fail, and the native engine copies again),
        and verification may read each copy once more.
        """
        live = self._live
        egress_usd = live.egress_usd_per_gb * live.total_bytes / 1e9
        most = sum(self.predicted(engine)[1] for engine in live.engines)
        most += egress_usd * (2 * len(live.engines))
        if "skyplane" in live.engines:
            check_skyplane(
                *self._places("skyplane"),
                limits=self._limits,
                total_bytes=live.total_bytes,
                egress_usd_per_gb=live.egress_usd_per_gb,
            )
            most += self._skyplane_cost().most_usd + egress_usd
        if most > live.max_usd:
            message = f"this may cost up to ${most:,.2f}, more than LARDER_LIVE_MAX_USD"
            hint = "lower LARDER_LIVE_BYTES, or raise the cap"
            raise ConfigError("config.cost_limit", message, where="make live", hint=hint)
        self._say(f"this may cost up to ${most:,.2f}")

    def _places(self, engine: str) -> tuple[SkyplanePlace, SkyplanePlace]:
        live, url = self._live, self._target_url(engine)
        access = live.target_access
        return (
            SkyplanePlace(
                self._source_url, self._source, live.source_access.region, live.source_access
            ),
            SkyplanePlace(url, open_store(url, access=access), access.region, access),
        )

    def _target_url(self, engine: str) -> str:
        return f"{self._live.target}/{engine}"

    def _generate(self) -> None:
        sizes = _sizes(self._live.total_bytes)
        total = format_bytes(sum(size for _, size in sizes))
        self._say(f"writing {len(sizes):,} objects, {total}, to {self._source_url}")
        chance = random.Random(0)  # noqa: S311 - any bytes do
        for key, size in sizes:
            like = ObjectInfo(
                key, size, "", 0, content_type="image/jpeg", metadata={"camera": "front left"}
            )
            with self._source.writer(key, like=like if size % 2 else None) as writer:
                for piece in _pieces(size, chance):
                    writer.write(piece)
                writer.commit()

    def _copied(self, engine: str) -> Result:
        self._say(f"copying with {engine}")
        seconds, usd = self.predicted(engine)
        began = time.perf_counter()
        status, hours, spent = "done", 0.0, 0.0
        source, target = self._places(engine)
        objects = [info for page in self._source.list() for info in page]
        remaining = objects
        if engine == "skyplane":
            report = run_skyplane(
                source,
                target,
                limits=self._limits,
                total_bytes=self._live.total_bytes,
                egress_usd_per_gb=self._live.egress_usd_per_gb,
                say=self._say,
            )
            status = "done" if report.status == "done" else report.message
            hours, spent = report.vm_hours, report.usd
            self._say(report.message)
            remaining = [each for each in objects if not self._adopted(target, each)]
        copies: list[Copy] = []
        limits = CopyLimits(concurrency=64, budget=ByteBudget(256 << 20))
        failures = copy_batch(
            self._source,
            open_store(target.url, access=target.access),
            remaining,
            prefix="",
            limits=limits,
            progress=NullProgress(),
            copied=copies.append,
        )
        if failures:
            status = f"{len(failures)} objects failed: {failures[0].line}"
        sent = sum(info.size_bytes for info in remaining)
        spent += self._live.egress_usd_per_gb * sent / 1e9
        spent += _REQUESTS_USD * 3 * len(objects)
        elapsed = time.perf_counter() - began
        return Result(
            engine, status, seconds, elapsed, usd, spent, hours, len(copies), len(objects)
        )

    def _adopted(self, target: SkyplanePlace, info: ObjectInfo) -> bool:
        return adopt(self._source, target.store, info, info.key, "digest") is not None

    def _clean(self) -> None:
        """Delete everything below both prefixes, which were empty before."""
        live = self._live
        for url, access in ((live.source, live.source_access), (live.target, live.target_access)):
            try:
                store = open_store(url, access=access)
                for page in list(store.list()):
                    for info in page:
                        store.delete(info.key)
                if url.startswith("s3://"):
                    place = parse_url(url)
                    bucket = S3Bucket(place.bucket, url, access)
                    abort_uploads(bucket, list_uploads(bucket, prefix=f"{place.prefix}/"))
            except LarderError as error:
                self._say(f"not cleaned up, which costs storage: {url}: {error}")
            else:
                self._say(f"deleted everything below {url}")


def _sizes(total_bytes: int) -> list[tuple[str, int]]:
    """Keys and sizes: mostly large objects, many small ones, two empty ones."""
    small = max(1, int(total_bytes * _SMALL_SHARE) // _SMALL_BYTES)
    rest = max(0, total_bytes - small * _SMALL_BYTES)
    large = [_LARGE_BYTES] * (rest // _LARGE_BYTES) + [rest % _LARGE_BYTES]
    return [
        ("_SUCCESS", 0),
        ("empty", 0),
        *((f"large/{n:05}.bin", size) for n, size in enumerate(large)),
        *((f"small/{n:06}.jpg", _SMALL_BYTES + n % 2) for n in range(small)),
    ]


def _pieces(size_bytes: int, chance: random.Random) -> Iterator[bytes]:
    while size_bytes:
        piece = chance.randbytes(min(size_bytes, 1 << 20))
        size_bytes -= len(piece)
        yield piece


def _lines(live: Live, results: list[Result]) -> Iterator[str]:
    yield f"{live.source} to {live.target}: {format_bytes(live.total_bytes)}"
    for each in results:
        rate = live.total_bytes / each.seconds
        yield f"{each.engine}: {each.status}"
        yield f"  objects    {each.objects:,}, {each.copied_natively:,} by the native engine"
        predicted, measured = format_seconds(each.predicted_seconds), format_seconds(each.seconds)
        yield f"  time       {measured} (predicted {predicted}), {format_bytes(rate)}/s"
        yield f"  price      ${each.usd:,.2f} (predicted ${each.predicted_usd:,.2f}) at list prices"
        yield f"  machines   {each.vm_hours:.2f} hours"


def main() -> int:
    """Run it; the report is on stdout, with ``--json`` as one document."""
    try:
        live = settings_of(os.environ)
        results = _Run(live, lambda line: print(line, file=sys.stderr)).run()  # noqa: T201
    except LarderError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_status
    if "--json" in sys.argv[1:]:
        print(json.dumps([asdict(each) for each in results]))  # noqa: T201
    else:
        print("\n".join(_lines(live, results)))  # noqa: T201
    return 0 if all(each.status == "done" for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
