"""Variables in the strings of a file."""

import pytest

from larder.config.text.replacements import expand, interpolate
from larder.config.text.yaml import parse

ENVIRON = {"A": "1", "EMPTY": "", "TEXT": "${A} $$ {x: y}"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("${A}", "1"),
        ("a${A}b${A}", "a1b1"),
        ("${A:-x}", "1"),
        ("${NONE:-x y:z}", "x y:z"),
        ("${NONE:-}", ""),
        ("${EMPTY:-x}", "x"),
        ("${EMPTY}", ""),
        ("${TEXT}", "${A} $$ {x: y}"),
        ("$${A}", "${A}"),
        ("$$", "$"),
        ("a$b $ $A", "a$b $ $A"),
        (r"patient-(\d+)$", r"patient-(\d+)$"),
    ],
)
def test_interpolate(text: str, result: str) -> None:
    assert interpolate(text, ENVIRON).text == result


def test_variables_and_missing_ones_are_named_once() -> None:
    expansion = interpolate("${A}${A}${N}${N}${M:-1}", ENVIRON)
    assert expansion.variables == ("A",)
    assert expansion.missing == ("N",)


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A", "${A-x}", "${A:x}", "a ${ b }"])
def test_a_brace_without_a_variable(text: str) -> None:
    with pytest.raises(ValueError, match="needs a variable"):
        interpolate(text, ENVIRON)
    (problem,) = expand(parse(f"a:\n  - '{text}'", "x.yaml"), ENVIRON).problems
    assert problem.where == "x.yaml:2"
    assert problem.message.startswith("a[0]: ")


def test_keys_and_other_scalars_stay() -> None:
    document = expand(parse("${A}: 1\nb: [true, '${A}']\n", "x.yaml"), ENVIRON).document
    assert document.value == {"${A}": 1, "b": [True, "1"]}
    assert document.variables == {("b", 1): ("A",)}
