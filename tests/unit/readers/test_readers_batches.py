import io
import multiprocessing
import pickle
import sys
import threading

import numpy as np
import pytest
from image_files import saved
from PIL import Image, ImageFile

from larder.errors import ObjectError
from larder.readers import batch_decoding, image_decoding
from larder.readers.batch_decoding import Decoding, batch_of
from larder.readers.image_decoding import decode_image
from larder.samples.indexed import Sample
from tests.support.errors import larder_error


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """A smooth one, so that what a decoder makes of it hardly depends on the decoder."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [x * 255 // width, y * 255 // height, (x + y) * 255 // (width + height)]
    return Image.fromarray(np.stack(channels, 2).astype(np.uint8)).convert(mode)


def encoded(image: Image.Image, format: str = "JPEG", **options: object) -> bytes:
    return saved(image, format, **options)


def use_decoder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "pillow":
        monkeypatch.setattr(image_decoding, "_simplejpeg", lambda: None)


def sample(key: str, label: int | None = None, **parts: bytes) -> Sample:
    return Sample(key, label, parts)


def test_samples_without_labels():
    assert batch_of([sample("a", cls=b"dog")]) == {"key": ["a"], "cls": [b"dog"]}
    assert batch_of([sample("a", 1, cls=b"1"), sample("b")])["label"] == [1, None]


def test_images_of_several_sizes_are_a_list_until_a_size_is_given():
    samples = [sample(f"{n}", jpg=encoded(picture(40 + n, 30))) for n in range(3)] + [sample("x")]
    pixels = Decoding(images=True)(batch_of(samples))["image"]
    assert [each.shape for each in pixels[:3]] == [(30, 40 + n, 3) for n in range(3)]
    assert pixels[3] is None
    assert Decoding(images=True, size=8)(batch_of(samples[:3]))["image"].shape == (3, 8, 8, 3)


def test_images_are_one_column_whatever_their_extension():
    data, mask = encoded(picture(9, 9)), encoded(picture(9, 9, "L"), "PNG")
    samples = [sample("a", 0, jpg=data), sample("b", 1, png=mask), sample("c", 2, json=b"{}")]
    mixed, alone = batch_of(samples[:2]), batch_of(samples[:1])
    assert Decoding(images=True)(mixed)["image"].shape == (2, 9, 9, 3)
    for columns in (["label", "image"], ["jpg"], ["json", "png"]):
        for batch in (mixed, alone):
            assert list(Decoding(images=True, columns=columns)(batch)) == columns
    by_name = Decoding(images=True, columns=["jpg", "json"])(mixed)
    assert (by_name["jpg"][0].shape, by_name["jpg"][1]) == ((9, 9, 3), None)
    assert by_name["json"] == [None, None]
    assert Decoding(columns=["png"])(mixed) == {"png": [None, mask]}
    with larder_error("config.invalid_value", "image"):
        Decoding(images=True)(batch_of([sample("a", jpg=data, png=mask)]))


MASKS = {
    "grey": np.array([[0, 100], [255, 3]], np.uint8),
    "16 bits": np.array([[0, 300], [65_535, 3]], np.uint16),
}


@pytest.mark.parametrize("numbers", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("scale", [1, 3])
def test_masks_keep_their_numbers_and_their_place_beside_the_image(numbers, scale):
    large = np.kron(
        np.hstack([numbers * 0, numbers, numbers * 0]), np.ones((20, 20), numbers.dtype)
    )
    beside = encoded(Image.fromarray((large > 0).astype(np.uint8) * 255), "PNG")
    parts = {"jpg": beside, "seg.png": encoded(Image.fromarray(large), "PNG")}
    decoding = Decoding(images=True, size=40 // scale, masks=["seg.png"])
    decoding = decoding.checked({"key", *parts})
    batch = decoding(batch_of([Sample("a", None, parts)]))
    (mask,) = batch["image.seg"]
    assert (mask.dtype, mask.shape) == (numbers.dtype, (40 // scale, 40 // scale, 1))
    assert np.array_equal(mask[[0, 0, -1, -1], [0, -1, 0, -1], 0], numbers.ravel())
    assert set(np.unique(mask)) == set(np.unique(numbers))
    if scale == 1:
        assert np.array_equal(mask > 0, batch["image"][0, ..., :1] > 0)


def test_a_mask_may_be_the_only_png():
    data = encoded(picture(9, 9))
    decoding = Decoding(images=True, masks=["png"]).checked(["jpg", "png"])
    batch = decoding(batch_of([sample("a", jpg=data, png=encoded(picture(9, 9, "P"), "PNG"))]))
    assert (batch["image"].shape, batch["mask"].shape) == ((1, 9, 9, 3), (1, 9, 9, 1))


def test_an_image_that_is_not_decoded_is_there_for_a_function():
    deep = np.full((4, 4), 40_000, np.uint16)
    samples = [sample("a", jpg=encoded(picture(9, 9)), png=encoded(Image.fromarray(deep), "PNG"))]
    own = {"png": lambda data: np.asarray(Image.open(io.BytesIO(data)))}
    batch = Decoding(images=["jpg"], transforms=own)(batch_of(samples))
    assert batch["image"].shape == (1, 9, 9, 3)
    assert np.array_equal(batch["png"][0], deep)


WRONG_NAMES = [
    ("columns", {"columns": "jpg"}),
    ("columns", {"columns": ["png"]}),
    ("columns", {"columns": ["mask"]}),
    ("decode", {"images": "jpg"}),
    ("decode", {"images": ["png"]}),
    ("masks", {"masks": "jpg"}),
    ("masks", {"masks": ["seg"]}),
    ("masks", {"masks": ["jpg"], "images": False}),
    ("transforms", {"transforms": {"png": len}}),
    ("transforms", {"transforms": {"jpg": len}}),
    ("transforms", {"transforms": {"image": len}, "columns": ["jpg"]}),
    ("size", {"size": 8, "parts": ["key", "image"]}),
    *[(name, {option: 1}) for name, option in (("decode", "images"), ("columns", "columns"))],
    ("transforms", {"transforms": len}),
    ("transforms of jpg", {"transforms": {"jpg": 1}, "images": False}),
    ("map", {"map": 1}),
]


@pytest.mark.parametrize(("where", "options"), WRONG_NAMES)
def test_names_that_no_batch_has_are_refused(where, options):
    parts = options.pop("parts", ["key", "jpg", "seg.png"])
    with larder_error("config.invalid_value", where):
        Decoding(**{"images": True, **options}).checked(parts)


@pytest.mark.parametrize("size", [7, 100, 400])
@pytest.mark.parametrize(("width", "height", "mode"), [(500, 375, "RGB"), (160, 200, "CMYK")])
@pytest.mark.parametrize("decoder", ["simplejpeg", "pillow"])
def test_a_size_is_the_square_in_the_middle(size, width, height, mode, decoder, monkeypatch):
    use_decoder(decoder, monkeypatch)
    image = picture(width, height)
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    wanted = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))
    made = decode_image(encoded(image.convert(mode), quality=95), "x", size)
    assert made.shape == (size, size, 3)
    assert np.abs(made.astype(int) - wanted.astype(int)).max() < 12


@pytest.mark.parametrize("decoder", ["simplejpeg", "pillow"])
def test_an_image_of_that_size_is_cut_and_not_scaled(decoder, monkeypatch):
    use_decoder(decoder, monkeypatch)
    data = encoded(picture(67, 32))
    made = decode_image(data, "x", 32)
    assert np.array_equal(made, decode_image(data, "x")[:, 17 : 17 + 32])
    assert made.flags.c_contiguous


def test_samples_that_cannot_be_decoded_are_named_and_may_be_left_out(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)  # of the user: for others
    good, deep = encoded(picture(9, 9)), Image.fromarray(np.zeros((4, 4), np.uint16))
    cut = {n: encoded(picture(90, 90), kind)[:-300] for n, kind in ((2, "JPEG"), (5, "PNG"))}
    bad = {0: b"no image", 4: encoded(deep, "PNG"), **cut}
    samples = [sample(f"{n}", n, jpg=bad.get(n, good), json=b"") for n in range(6)]
    for n in bad:
        for size in (None, 4):
            with larder_error("sample.undecodable", f"{n}.jpg"):
                Decoding(images=True, size=size)(batch_of(samples[n : n + 1]))
    errors: list[ObjectError] = []
    batch = Decoding(images=True)(batch_of(samples), lambda row, error: errors.append(error))
    assert batch["key"] == ["1", "3"]
    assert batch["label"].tolist() == [1, 3]
    assert batch["image"].shape == (2, 9, 9, 3)
    assert [error.where for error in errors] == ["0.jpg", "2.jpg", "4.jpg", "5.jpg"]


def test_numbers_of_numpy_become_an_array():
    batch = Decoding(transforms={"n": np.int16})(
        batch_of([sample("a", n=b"7"), sample("b", n=b"8")])
    )
    assert batch["n"].dtype == np.int16
    assert batch["n"].tolist() == [7, 8]


@pytest.mark.parametrize("limit", [0, 1 << 30])
@pytest.mark.parametrize(("bad", "other"), [({}, {}), ({0, 3}, {0}), ({2}, {3})])
def test_arrays_alike_become_one_array(limit, bad, other, monkeypatch):
    def made(data: bytes) -> np.ndarray:
        number = int(data)
        if number in bad:
            raise ObjectError("sample.undecodable", "it is bad", where=str(number))
        return np.full(3 if number in other else 2, number, np.int16)

    monkeypatch.setattr(batch_decoding, "_ARRAY_BYTES", limit)
    monkeypatch.setattr(batch_decoding, "_cores", lambda: 3)
    samples = [sample(f"{n}", n=f"{n}".encode()) for n in range(5)]
    decoding = Decoding(transforms={"n": made})
    values = decoding(batch_of(samples), lambda row, error: None)["n"]
    assert [value[0] for value in values] == [n for n in range(5) if n not in bad]
    assert isinstance(values, np.ndarray) == set(other).issubset(bad)


def test_what_a_function_raises_names_the_sample_and_may_be_skipped():
    decoding = Decoding(transforms={"json": lambda part: 1 / len(part)})
    batch = batch_of([sample("a", json=b""), sample("b", json=b"{}")])
    with larder_error("sample.undecodable", "a.json") as caught:
        decoding(batch)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert decoding(batch, lambda row, error: None) == {"key": ["b"], "json": [0.5]}


@pytest.mark.parametrize("size", [None, 4, 9])
def test_a_function_may_write_to_an_array(size):
    def darkened(pixels: np.ndarray) -> np.ndarray:
        pixels //= 2
        return pixels

    decoding = Decoding(images=True, size=size, transforms={"image": darkened, "npy": darkened})
    read_only = np.frombuffer(bytes(4), np.uint8)
    batch = {"key": ["a"], "png": [encoded(picture(9, 9), "PNG")], "npy": [read_only]}
    assert decoding(batch)["image"].max() < 128


def test_flipped_views_of_several_shapes_are_copied():
    """PyTorch makes no tensor of an array with negative strides."""
    samples = [
        sample(key, jpg=encoded(picture(*size))) for key, size in (("a", (9, 5)), ("b", (4, 8)))
    ]
    decoding = Decoding(images=True, transforms={"image": lambda pixels: pixels[::-1]})
    values, whole = decoding(batch_of(samples))["image"], Decoding(images=True)(batch_of(samples))
    for value, pixels in zip(values, whole["image"], strict=True):
        assert value.flags.c_contiguous
        np.testing.assert_array_equal(value, pixels[::-1])


def forked(decoding: Decoding) -> list[int]:
    return list(decoding(batch_of([sample("a", jpg=encoded(picture(9, 9)))]))["image"].shape)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_started_after_decoding_decodes(method):
    decoding = Decoding(images=True)
    assert forked(decoding) == [1, 9, 9, 3]
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(forked, (decoding,)) == [1, 9, 9, 3]
    assert pickle.loads(pickle.dumps(decoding)) == decoding


@pytest.mark.parametrize("size", [8, 0, True, 224.0, "224", 10**9])
def test_a_size_that_makes_no_sense_is_refused(size):
    with larder_error("config.invalid_value", "size"):
        Decoding(images=size != 8, size=size)


def test_a_missing_decoder_is_named_before_anything_is_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with larder_error("config.missing_package") as caught:
        Decoding(images=True)
    assert "[jpeg]" in caught.value.hint


def test_a_decoder_that_cannot_be_imported_is_not_the_fault_of_an_image(monkeypatch, tmp_path):
    (tmp_path / "simplejpeg.py").write_text("raise ImportError('libturbojpeg.so: not found')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "simplejpeg", raising=False)
    image_decoding._simplejpeg.cache_clear()
    with larder_error("config.missing_package", "simplejpeg") as caught:
        Decoding(images=True)
    assert "libturbojpeg.so" in caught.value.message


def test_a_function_that_cannot_import_is_not_the_fault_of_a_sample():
    def imports(part: bytes) -> None:
        import no_such_module_here  # noqa: F401

    with larder_error("config.missing_package"):
        Decoding(transforms={"txt": imports})(
            batch_of([sample("a", txt=b"")]), lambda row, error: None
        )


def test_processes_that_share_the_cores_decode_with_their_part_of_them(monkeypatch):
    monkeypatch.setattr(batch_decoding, "_processes", 1)
    monkeypatch.setattr(batch_decoding, "_cores", lambda: 6)
    threads = []
    barrier = threading.Barrier(3)

    def transform(value):
        barrier.wait(30)
        threads.append(threading.get_ident())
        return value

    batch_decoding.share_cores(2)
    samples = [sample(f"{n}", txt=b"x") for n in range(30)]
    Decoding(transforms={"txt": transform})(batch_of(samples))
    assert len(set(threads)) == 3
