"""Random damage to a published dataset and its repair, with what must hold afterwards."""

from __future__ import annotations

import hashlib
import io
import random
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline_lab import Lab, directory_lab, images, png
from verify_lab import DOCUMENTS, SPLITS, is_work, text_lab, verified

from tests.support.runs import between, forget_manifests
from tests.support.stores import Stop, Stopped, StoppingStore

KINDS = (
    *("deleted", "truncated", "flipped", "emptied", "longer"),
    *("exchanged", "exchanged", "exchanged", "replaced", "folder"),
)
STRANGER = "stranger.txt"
"""A file in a folder that stands in the place of another file."""


def _grown(folder: Path, **fields: Any) -> Lab:
    lab = directory_lab(folder, images("abc", each=5), splits=SPLITS, **fields)
    with between():
        lab.prepare()
        lab.remove("a/02.png", "b/03.png")
        lab.add({"a/zz.png": png(7)})
        lab.prepare()
        lab.add({"b/zz.png": png(8), "c/00.png": png(9)})
        lab.prepare()
    return lab


BASES: dict[str, Callable[[Path], Lab]] = {
    "text": lambda folder: text_lab(folder, shards={"format": "tfrecord", "bytes": 6_000}),
    "omitted": lambda folder: _grown(folder, growth={"removals": "omit"}),
    "mirrored": lambda folder: _grown(folder, mirror=True, cache={"records": "encoded"}),
}


@dataclass
class Base:
    """A published dataset that trials damage, and its files as they were published."""

    lab: Lab
    root: Path
    version: str
    files: dict[str, bytes]
    named: set[str] = field(default_factory=set)
    fragile: set[str] = field(default_factory=set)

    @classmethod
    def made(cls, name: str, folder: Path) -> Base:
        lab = BASES[name](folder)
        root = lab.folder
        with between():
            document = verified(lab)
        assert document["status"] == "intact", document
        base = cls(lab, root, document["version"], _read(root))
        base.named = set(base._named())
        base.fragile = {path for path in base.published if base._has_lost_samples(path)}
        return base

    def _has_lost_samples(self, path: str) -> bool:
        """Whether a tar has the bytes of an object that was removed or changed since."""
        if not path.endswith(".tar"):
            return False
        places = Path(str(self.lab.source)), self.root / "mirror"
        with tarfile.open(fileobj=io.BytesIO(self.files[path])) as tar:
            for member in tar.getmembers():
                file = tar.extractfile(member)
                data = file.read() if file else b""
                objects = [place / member.name for place in places]
                known = [each.read_bytes() for each in objects if each.is_file()]
                if not member.name.endswith(".cls") and data not in known:
                    return True
        return False

    def _named(self) -> Iterator[str]:
        """What the version names: without it, a verification finds something."""
        for path in self.published:
            if path.startswith("tags/"):
                yield path
                continue
            moved = self.root / "aside"
            (self.root / path).rename(moved)
            forget_manifests()
            with between():
                document = verified(self.lab)
            if document["status"] == "damaged":
                yield path
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            moved.rename(self.root / path)

    @property
    def document(self) -> str:
        return f"versions/{self.version}/version.json"

    @property
    def versions(self) -> list[str]:
        """The other versions, which may need what is in the place of a file of this one."""
        ids = {path.split("/")[1] for path in self.published if path.startswith("versions/")}
        return sorted(ids - {self.version})

    @property
    def published(self) -> list[str]:
        return [path for path in self.files if not is_work(path)]

    def restore(self) -> None:
        """Everything as it was published, whatever a trial has left."""
        for path in sorted(self.root.rglob("*"), reverse=True):
            name = path.relative_to(self.root).as_posix()
            if path.is_dir():
                if name in self.files or not any(path.iterdir()):
                    shutil.rmtree(path)
            elif name not in self.files:
                path.unlink()
        for name, data in self.files.items():
            path = self.root / name
            if not path.is_file() or path.read_bytes() != data:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)


def _read(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".larder-tmp" not in path.name
    }


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _damage(base: Base, chance: random.Random) -> dict[str, str]:
    """Damage some files; returns what was done, by path."""
    done: dict[str, str] = {}
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        paths = [path for path in base.published if path not in done]
        path, other = chance.sample(paths, 2)
        file = base.root / path
        kind = chance.choice(KINDS)
        data = file.read_bytes()
        if kind == "deleted":
            file.unlink()
        elif kind == "truncated":
            file.write_bytes(data[: chance.randrange(len(data))] if data else b"")
        elif kind == "flipped":
            place = chance.randrange(len(data))
            flipped = bytearray(data)
            flipped[place] ^= 1 << chance.randrange(8)
            file.write_bytes(bytes(flipped))
        elif kind == "emptied":
            file.write_bytes(b"")
        elif kind == "longer":
            file.write_bytes(data + b"\0")
        elif kind == "exchanged":
            file.write_bytes((base.root / other).read_bytes())
            (base.root / other).write_bytes(data)
            done[other] = f"exchanged with {path}"
        elif kind == "replaced":
            file.write_bytes((base.root / other).read_bytes())
        else:
            file.unlink()
            file.mkdir()
            (file / STRANGER).write_bytes(b"of somebody else")
        done[path] = f"{kind}{f' with {other}' if kind in ('exchanged', 'replaced') else ''}"
    return done


@contextmanager
def _source(base: Base, state: str) -> Iterator[None]:
    """Within, the source is ``intact``, ``changed`` or ``gone``."""
    source = Path(str(base.lab.source))
    aside = source.with_name("source-aside")
    if state == "intact":
        yield
        return
    source.rename(aside)
    try:
        source.mkdir()
        (source / "a").mkdir()
        (source / "a/new.txt").write_bytes(b"new")
        if state == "changed":
            shutil.copytree(aside, source, dirs_exist_ok=True)
            for path in sorted(source.rglob("*"))[::3]:
                if path.is_file():
                    path.write_bytes(b"changed" + path.read_bytes()[7:])
        yield
    finally:
        shutil.rmtree(source)
        aside.rename(source)


def trial(base: Base, seed: int) -> list[str]:
    """One trial; returns what does not hold, with what was done."""
    chance = random.Random(seed)
    state = chance.choice(("intact", "intact", "intact", "changed", "gone"))
    kill = chance.randrange(40) if chance.random() < 0.3 else None
    problems: list[str] = []
    try:
        damage = _damage(base, chance)
        if not base.versions and {"tags/latest.json", base.document} <= damage.keys():
            return []  # nothing says that it was published: it is refused with version.missing
        with _source(base, state):
            problems += _repaired(base, damage, state, kill)
    finally:
        base.restore()
    return [f"seed {seed}, source {state}, killed {kill}, {damage}: {one}" for one in problems]


def _repaired(base: Base, damage: dict[str, str], state: str, kill: int | None) -> Iterator[str]:
    before = {_digest(data) for data in _read(base.root).values()}
    named = [path for path in base.published if not path.startswith("tags/")]
    worthy = {_digest(base.files[path]): path for path in named}
    if kill is not None:
        stop = Stop(after=kill)
        with between(lambda store: StoppingStore(store, stop)):
            try:
                _verified(base)
            except Stopped:
                pass
            except Exception as error:  # noqa: BLE001 - whatever it is, it should not be
                yield f"killed: {type(error).__name__}: {error}"
        yield from _lost(base, before, worthy)
    documents = []
    for version in ("latest", *base.versions, base.version):
        with between():
            try:
                documents.append(_verified(base, version))
            except Exception as error:  # noqa: BLE001 - whatever it is, it should not be
                yield f"{version}: {type(error).__name__}: {error}"
                return
        yield from _lost(base, before, worthy)
    after = _read(base.root)
    wrong = {
        path
        for path in base.named
        if after.get(path) != base.files[path] and not path.startswith("tags/")
    }
    with between():
        last = verified(base.lab, version=base.version)
    if last["status"] != "damaged" and wrong:
        yield f"{sorted(wrong)} are damaged, and the status is {last['status']}"
    for document in documents:
        if document["status"] == "damaged" and not document["findings"]:
            yield "damaged without a finding"
    paths = {row["path"] for row in last["findings"]}
    named = any(path.endswith((*DOCUMENTS, ".parquet", ".npy", ".npz")) for path in wrong)
    if not named and (unnamed := wrong - paths):
        yield f"{sorted(unnamed)} are damaged, and not named"
    if state == "intact" and last["status"] == "damaged" and not _may_refuse(base, damage):
        rows = [(row["line"], row["repair"]) for row in last["findings"][:4]]
        told = [(row["path"], row["repair"]) for row in documents[-1]["findings"][:4]]
        yield f"the source is intact, and it is not whole: {rows} {told}"


def _verified(base: Base, version: str = "latest") -> Any:
    forget_manifests()
    return verified(base.lab, version=version, repair=True)


def _lost(base: Base, before: set[str], worthy: dict[str, str]) -> Iterator[str]:
    after = {_digest(data) for data in _read(base.root).values()}
    for digest in (before & worthy.keys()) - after:
        mark = "the version's" if worthy[digest] in base.named else "another version's"
        yield f"lost: {mark} {worthy[digest]}"


def _may_refuse(base: Base, damage: dict[str, str]) -> bool:
    """Whether nothing can make again what is damaged: the user has to do something."""
    if any(kind == "folder" for kind in damage.values()):
        return True
    if damage.keys() & base.fragile:
        return True
    if "exchanged with tags/latest.json" in damage.values():
        return True  # it is among what was replaced until the user puts it back
    return any(path.endswith(DOCUMENTS) for path in damage)
