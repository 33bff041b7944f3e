"""The data card of a version: complete runs, and the page as a browser would read it."""

import base64
import io
import json
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from image_files import saved
from PIL import Image
from pipeline_lab import Lab, directory_lab, images, png, write
from verify_lab import findings, text_lab, verified

from larder.card import draw
from larder.card import pictures as card_pictures
from larder.card.draw import card, draw_card
from larder.cli.exit import run
from larder.cli.main import dispatch
from larder.cli.prepare_command import prepare_with_card
from larder.errors import DamageError, LarderError, printable
from larder.jobs.step_runner import InlineRunner
from larder.manifest.sealed import seal, unseal
from larder.progress import NullProgress, StageTimes
from larder.versions import layout
from tests.support.errors import larder_error
from tests.support.runs import forget_manifests

TEXTS = {"h1", "p", "th", "td", "figcaption", "pre"}
ALLOWED = TEXTS | {"html", "head", "meta", "title", "style", "body"}
ALLOWED |= {"h2", "table", "tr", "div", "figure", "img", "b", "span"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "class", "src", "alt"}


class Page(HTMLParser):
    """What a browser would show: elements, images, and the text of each cell and paragraph."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.images: list[Image.Image] = []
        self.texts: list[str] = []
        self._in_text = False
        self.feed(text)
        self.close()
        assert set(self.elements) <= ALLOWED, self.elements
        assert self.attributes <= ATTRIBUTES

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        if tag == "img":
            source = dict(attrs)["src"] or ""
            assert source.startswith(("data:image/png;base64,", "data:image/jpeg;base64,"))
            data = base64.b64decode(source.partition(",")[2], validate=True)
            self.images.append(Image.open(io.BytesIO(data)))
            self.images[-1].load()
        if tag in TEXTS:
            self.texts.append("")
            self._in_text = True

    def handle_endtag(self, tag: str) -> None:
        self._in_text &= tag not in TEXTS

    def handle_data(self, data: str) -> None:
        if self._in_text:
            self.texts[-1] += data

    def row(self, name: str) -> list[str]:
        """The eight texts from a cell on."""
        place = self.texts.index(name)
        return self.texts[place : place + 8]


def built(lab: Lab, **fields: Any) -> dict[str, Any]:
    forget_manifests()
    settings = lab.settings(**fields)
    return prepare_with_card(settings, InlineRunner(settings.batches_at_once, StageTimes()))


def page_of(document: Mapping[str, Any]) -> Page:
    return Page(Path(document["card"].removeprefix("file://")).read_text())


def test_the_card_of_a_version(tmp_path):
    lab = directory_lab(tmp_path, splits={"train": ["a/**", "b/**"], "validation": "c/**"})
    document = built(lab, description="Noise & <more noise>")
    page = page_of(document)
    smallest = min(len(data) for key, data in images("ab").items() if key.endswith("png"))
    assert page.row("train")[:3] == ["train", "8", f"{smallest + 1} B"]
    assert page.row("validation")[:2] == ["validation", "4"]
    assert page.row("a")[:4] == ["a", "4", "4", "0"]
    assert page.row("c")[:4] == ["c", "4", "0", "4"]
    assert "Noise & <more noise>" in page.texts
    assert document["digest"] in page.texts
    assert lab.settings().dataset.source.url in page.texts
    assert page.elements["figure"] == 12
    assert len(page.images) == 12 + 2
    assert page.texts.count("c validation · c/02") == 1
    assert "card" in document["stages"]
    assert any("No previous version" in text for text in page.texts)

    path = Path(document["card"].removeprefix("file://"))
    first = path.read_bytes()
    path.unlink()
    assert built(lab)["status"] == "reused"
    assert not path.exists(), "the card of a version that stands is not made again by itself"
    again = card(lab.settings(description="Noise & <more noise>"), "latest")
    assert again == {"dataset": "d", "version": document["version"], "card": document["card"]}
    assert path.read_bytes() == first


@pytest.mark.push
def test_a_card_is_neither_foreign_nor_missed(tmp_path):
    lab = directory_lab(tmp_path)
    document = built(lab)
    lab.check()  # every object of the version is one that it names, or the card
    path = Path(document["card"].removeprefix("file://"))
    assert verified(lab)["findings"] == []
    other = path.with_name("other.html")
    other.write_text("foreign")
    assert [Path(each).name for each in findings(verified(lab))] == ["other.html"]
    other.unlink()
    shutil.rmtree(path.parent)
    assert verified(lab)["findings"] == []


@pytest.mark.push
def test_what_changed_since_the_previous_version(tmp_path):
    lab = directory_lab(tmp_path, shards={"bytes": 1_500}, cache=None)
    first = built(lab)
    write(lab.settings().dataset.source.url, {"new/00.png": png(7), "new/01.png": png(8)})
    second = built(lab)
    assert second["growth"]["samples"]["added"] == 2
    page = page_of(second)
    (text,) = (text for text in page.texts if text.startswith("Since version"))
    assert text == (
        f"Since version {first['version']}: 12 samples are in 1 segment of that version, 2 in new"
        " ones."
    )
    assert "Samples: 2 added, 12 unchanged." in page.texts
    assert "Classes added: new." in page.texts
    assert ["train", "12", "14", "+2"] in [page.texts[n : n + 4] for n in range(len(page.texts))]
    of_first = Page(Path(card(lab.settings(), first["version"])["card"][7:]).read_text())
    assert any("No previous version" in text for text in of_first.texts)


HOSTILE = {
    "<script>alert(1)</script>": "<img src=x onerror=alert(1)>",
    '"><svg onload=x>': "&lt;&amp;",
    "$\\frac{$": "</figcaption></style>",
    "数字": "\u202eetad",
    "%s{0}": "javascript:x",
}


def test_keys_classes_and_texts_may_be_anything(tmp_path):
    objects = {
        f"{name.replace('/', '∕')}/{key.replace('/', '∕').replace('.', '')}{number}.{ext}": data
        for number, (name, key) in enumerate(HOSTILE.items())
        for ext, data in {
            "png": png(number),
            "txt": b"</pre><script>alert(2)</script>",
        }.items()
    }
    texts = {f"plain/{number}.txt": b"<b>\x1b[31m\x00" * number for number in range(3)}
    lab = directory_lab(tmp_path, {**objects, **texts}, cache=None)
    page = page_of(built(lab))
    classes = {key.partition("/")[0] for key in objects}
    assert classes <= set(page.texts)
    assert page.elements["figure"] == len(HOSTILE) + len(texts)
    captions = [text for text in page.texts if " train · " in text]
    assert {caption.partition(" · ")[2] for caption in captions} == {
        printable(key.rpartition(".")[0]) for key in (*objects, *texts)
    }


def test_pictures_of_what_is_not_an_image_that_can_be_shown(tmp_path, monkeypatch):
    deep = Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30) * 100)
    objects = {
        "s/broken.png": b"not an image",
        "s/deep.png": saved(deep),
        "s/empty.txt": b"",
        "s/large.bin": bytes(30_000),
        "s/long.json": json.dumps({"text": "ü" * 1_000}, ensure_ascii=False).encode(),
        "s/sound.wav": b"RIFF\xff\x00",
        "s/wide.jpg": saved(Image.new("CMYK", (900, 300)), "JPEG"),
    }
    monkeypatch.setattr(card_pictures, "MAX_SAMPLE_BYTES", 20_000)
    lab = directory_lab(tmp_path, objects, cache=None, validate="none")
    page = page_of(built(lab))
    assert page.elements["figure"] == len(objects)
    shown = {image.format: image for image in page.images}
    assert shown["JPEG"].size == (160, 53)
    grey = next(image for image in page.images if image.size == (30, 20))
    assert grey.getextrema() == (0, 255)
    texts = "\n".join(page.texts)
    assert "30.0 kB, too large to show" in texts
    assert "the image cannot be decoded" in texts
    assert "wav: 6 B" in texts
    assert "ü…" in texts


def test_no_card_of_splits_that_a_document_says_are_empty(tmp_path):
    lab = text_lab(tmp_path, shards={"format": "parquet", "bytes": 2_000})
    path = lab.folder / layout.version_key(lab.prepare()["version"])
    plain = unseal(path.read_bytes(), "")
    for split in plain["splits"].values():
        split.update(samples=0)
    path.write_bytes(seal(plain))
    with larder_error("damage.manifest"):
        card(lab.settings(), "latest")


def in_the_way(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> str:
    version: str = built(lab)["version"]
    for path in ("versions", "tags"):
        shutil.rmtree(lab.folder / path)
    (lab.folder / "versions" / version).mkdir(parents=True)
    (lab.folder / "versions" / version / "card").write_text("in the way")
    return f"larder card d@{version}"


def without_matplotlib(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    return "matplotlib"


@pytest.mark.parametrize("fault", [in_the_way, without_matplotlib])
def test_what_fails_is_a_warning(tmp_path, monkeypatch, fault):
    lab = directory_lab(tmp_path)
    said = fault(lab, monkeypatch)
    document = built(lab)
    assert (document["status"], "card" in document) == ("built", False)
    (warning,) = [each for each in document["warnings"] if each["code"] == "card"]
    assert said in warning["message"]
    assert "\n" not in warning["message"]
    with pytest.raises(LarderError):
        card(lab.settings(), "latest")


def test_an_interrupted_card_leaves_a_whole_version_without_one(tmp_path):
    lab = directory_lab(tmp_path)
    stop = Event()

    class Interrupted(NullProgress):
        def start(self, stage: str, **_totals: Any) -> None:
            if stage == "card":
                stop.set()

    settings = lab.settings()
    times = StageTimes(Interrupted())
    with larder_error("run.interrupted"):
        prepare_with_card(settings, InlineRunner(settings.batches_at_once, times, stop))
    (version,) = lab.check()
    assert not list(lab.folder.glob("versions/*/card"))
    assert built(lab)["status"] == "reused"
    assert card(settings, "latest")["version"] == version


def test_a_card_is_drawn_of_a_version_that_is_there_and_whole(tmp_path):
    lab = directory_lab(tmp_path)
    version = built(lab)["version"]
    drawn = draw_card(lab.settings(), version, progress=NullProgress())
    assert "| train | 12 |" in drawn.note
    assert drawn.note.count("](data:image/png;base64,") == 2
    assert drawn.url in drawn.note
    assert not any(f"{name}/0" in drawn.note for name in "abc"), "no sample is on other pages"
    for name in ("v7", "0" * 32, "../x", ""):
        with larder_error("version.missing"):
            card(lab.settings(), name)
    (index,) = lab.folder.glob("segments/*/index/rows-*.npz")
    index.write_bytes(index.read_bytes()[:-1])
    with pytest.raises(DamageError):
        card(lab.settings(), "latest")


@pytest.mark.push
def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert dispatch(["init"]) == 0
    source = tmp_path / "data/source"
    write(source, {f"{number}.txt": b"text" for number in range(3)})
    settings = ("--set", f"source.url={source}", "--quiet")
    assert run(lambda: dispatch(["prepare", "--dataset", "files", *settings])) == 0
    (path,) = tmp_path.rglob("card.html")
    path.unlink()
    capsys.readouterr()
    assert run(lambda: dispatch(["card", "files@latest", *settings[:2], "--json"])) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["card"] == f"file://{path}"
    assert Page(path.read_text()).elements["figure"] == 3
    assert run(lambda: dispatch(["card", "files", "--quiet"])) == 0
    assert Page(path.read_text()).row("source")[1] == "the variables in source.url are not set"
    assert run(lambda: dispatch(["card", "files@nothing", *settings[:2]])) == 2
    assert "version.missing" in capsys.readouterr().err
    assert run(lambda: dispatch(["card", "nobody"])) == 2


@pytest.mark.parametrize("classes", [1000, 1007])
def test_the_chart_of_many_classes_has_at_most_a_thousand_bars(classes, monkeypatch):
    """Drawing each of 21,841 takes seconds."""
    drawn: list[Any] = []
    stacked = draw._stacked
    monkeypatch.setattr(draw, "_stacked", lambda *own: [drawn.append(own), stacked(*own)][1])
    samples = np.append(np.arange(classes, 0, -1), 0)
    facts = SimpleNamespace(splits={"train": SimpleNamespace(class_samples=samples)})
    draw._balance(facts)  # type: ignore[arg-type]
    ((_, edges, counts),) = drawn
    assert len(counts["train"]) == 1000
    assert sum(counts["train"] * np.diff(edges)) == pytest.approx(samples.sum())


def test_a_version_without_samples_has_no_charts():
    none = SimpleNamespace(histogram=np.zeros(256, np.int64), class_samples=np.zeros(1, np.int64))
    facts = SimpleNamespace(splits={"train": none}, version=SimpleNamespace(classes=()))
    assert draw.charts_of(facts) == {}
