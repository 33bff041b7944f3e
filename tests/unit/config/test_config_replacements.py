import pytest

from larder.config.config_document import expand, interpolate
from larder.config.set_arguments import apply, parse_settings
from larder.config.text import parse
from larder.errors import ConfigError
from tests.support.errors import larder_error

ENVIRON = {"A": "1", "EMPTY": "", "TEXT": "${A} $$ {x: y}"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${A:-x}", "1"),
        ("${NONE:-x y:z}", "x y:z"),
        ("${NONE:-}", ""),
        ("${EMPTY:-x}", "x"),
        ("${EMPTY}", ""),
        ("a$b $ $A", "a$b $ $A"),
        (r"patient-(\d+)$", r"patient-(\d+)$"),
    ],
)
def test_interpolate(text, result):
    assert interpolate(text, ENVIRON).text == result


@pytest.mark.parametrize("text", ["${", "${}", "${1A}", "${A", "${A-x}", "${A:x}", "a ${ b }"])
def test_a_brace_without_a_variable(text):
    with pytest.raises(ValueError, match="variable"):
        interpolate(text, ENVIRON)
    (problem,) = expand(parse(f"a:\n  - '{text}'", "x.yaml"), ENVIRON).problems
    assert problem.where == "x.yaml:2"


def test_keys_and_other_scalars_stay():
    document = expand(parse("${A}: 1\nb: [true, '${A}']\n", "x.yaml"), ENVIRON).document
    assert document.value == {"${A}": 1, "b": [True, "1"]}
    assert document.variables == {("b", 1): ("A",)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=", None),
        ("a=s3://b/c?d=e#f", "s3://b/c?d=e#f"),
        ("a=**/*.JPEG", "**/*.JPEG"),
        ("a=b: c # d", "b: c # d"),
        ("a= x ", "x"),
        ("a=''", ""),
        ("a=['*.a', b]", ["*.a", "b"]),
        ("a=${A}", "${A}"),
    ],
)
def test_values(text, value):
    assert parse_settings([text]).dataset[0].value == value


@pytest.mark.parametrize("text", ["", "a", "=1", "a..b=1", ".a=1", "a.=1", "a b=1", "cluster=x"])
def test_wrong_syntax(text):
    with larder_error("config.invalid_setting"):
        parse_settings([text])


def test_settings_are_separated_by_their_first_key():
    found = parse_settings(["a=1", "cluster.a=2", "clusters.a=3"])
    assert [each.where for each in found.dataset] == ["--set a", "--set clusters.a"]
    assert [(each.path, each.where) for each in found.cluster] == [(("a",), "--set cluster.a")]


@pytest.mark.parametrize("key", ["a.b", "l.0"])
def test_a_path_through_a_value_without_keys(key):
    problems: list[ConfigError] = []
    settings = parse_settings([f"{key}=1"]).dataset
    apply(parse("a: text\nl: [1]\n", "x.yaml"), settings, problems)
    (problem,) = problems
    assert (problem.code, problem.where) == ("config.unknown_key", f"--set {key}")
