import io
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from image_files import saved
from PIL import Image

from larder.budgets import ByteBudget
from larder.config.shape import decoder_uses
from larder.errors import NotFoundError, ObjectError
from larder.samples.decoders import Decoders
from larder.shards.images.check import ImageRules, check_decodable
from tests.support.budgets import WatchedBudget
from tests.support.errors import larder_error


def encoded(kind: str, side: int = 64) -> bytes:
    return saved(Image.effect_noise((side, side), 60), kind)


@pytest.mark.parametrize("mode", ["header", "decode"])
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>503</html>",
        b"\xff\xd8\xff",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a" + bytes(7),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",  # a program
    ],
)
def test_a_file_that_is_not_an_image_is_named(data, mode):
    with larder_error("sample.undecodable", "a"):
        check_decodable("jpg", data, mode, where="a")  # type: ignore[arg-type]


@pytest.mark.parametrize("ext", ["json", "cls", "txt", "npy", "mp4", ""])
def test_other_parts_pass_and_may_be_empty(ext):
    check_decodable(ext, b"", "decode", where="a")


@pytest.mark.parametrize("mode", ["header", "decode"])
def test_the_header_tells_that_there_are_too_many_pixels(mode):
    data = encoded("PNG", 10)
    check_decodable("png", data, mode, where="a", rules=ImageRules(max_pixels=100))
    with larder_error("sample.undecodable"):
        check_decodable("png", data[:60], mode, where="a", rules=ImageRules(max_pixels=99))


@pytest.mark.parametrize("cut", [0, 3_000])
def test_an_image_that_is_decoded_counts_in_the_budget(cut):
    budget = WatchedBudget(100)
    data = encoded("PNG")
    with pytest.raises(ObjectError) if cut else nullcontext():
        whole = data[: len(data) - cut]
        check_decodable("png", whole, "decode", where="a", rules=ImageRules(budget=budget))
    assert (budget.asked, budget.held) == ([64 * 64], 0)


def test_an_error_of_the_store_is_not_reported_as_one_of_the_image():
    class Vanished(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise NotFoundError("object.missing", "it is gone")

    with pytest.raises(NotFoundError):
        check_decodable("jpg", Vanished(b"x"), "header", where="a")


def test_a_decoder_holds_the_memory_that_it_needs(monkeypatch):
    budget = ByteBudget(100)
    free: list[bool] = []

    def decode(data: bytes) -> Any:
        taken = budget.try_acquire(41)
        free.append(taken is not None)
        budget.release(taken or 0)
        return np.frombuffer(data, np.uint8)

    decode.version, decode.expands = 1, 6  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_holding", SimpleNamespace(decode=decode))
    uses = decoder_uses({"bin": "own_holding:decode"})
    rules = ImageRules(budget=budget, decoders=Decoders(uses), forms=True)
    for data in (b"123456789", b"1234567890", io.BytesIO(b"123456789"), io.BytesIO(bytes(99))):
        assert check_decodable("bin", data, "decode", where="a", rules=rules) == "uint8[1]"
    assert free == [True, False, True, False]
    assert check_decodable("txt", b"", "decode", where="a", rules=rules) is None
    assert budget.try_acquire(100) == 100
