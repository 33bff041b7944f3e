"""--set key.path=value."""

import pytest

from larder.config.text.replacements import apply, parse_settings
from larder.config.text.yaml import parse
from larder.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1", 1),
        ("a=", None),
        ("a=null", None),
        ("a=s3://b/c?d=e#f", "s3://b/c?d=e#f"),
        ("a=**/*.JPEG", "**/*.JPEG"),
        ("a=b: c # d", "b: c # d"),
        ("a= x ", "x"),
        ('a="7"', "7"),
        ("a=''", ""),
        ("a=['*.a', b]", ["*.a", "b"]),
        ("a={b: 1}", {"b": 1}),
        ("a=${A}", "${A}"),
    ],
)
def test_values(text: str, value: object) -> None:
    assert parse_settings([text])[0][0].value == value


@pytest.mark.parametrize("text", ["", "a", "=1", "a..b=1", ".a=1", "a.=1", "a b=1", "cluster=x"])
def test_wrong_syntax(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings([text])
    assert caught.value.code == "config.invalid_setting"


def test_wrong_yaml_names_the_key_and_not_the_value() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(["a.b=[hunter2"])
    assert caught.value.code == "config.invalid_setting"
    assert caught.value.where == "--set a.b"
    assert "hunter2" not in str(caught.value)


def test_settings_are_separated_by_their_first_key() -> None:
    dataset, cluster = parse_settings(["a=1", "cluster.a=2", "clusters.a=3"])
    assert [(setting.path, setting.where) for setting in dataset] == [
        (("a",), "--set a"),
        (("clusters", "a"), "--set clusters.a"),
    ]
    assert [(setting.path, setting.where) for setting in cluster] == [(("a",), "--set cluster.a")]


def test_apply_replaces_values_creates_mappings_and_records_positions() -> None:
    document = parse("a: {b: 1, c: 2}\nn: null\n", "x.yaml")
    settings, _ = parse_settings(["a.b=5", "n.m=6", "new.deep.key=7", "a.b=8"])
    applied = apply(document, settings)
    assert applied.value == {
        "a": {"b": 8, "c": 2},
        "n": {"m": 6},
        "new": {"deep": {"key": 7}},
    }
    assert document.value == {"a": {"b": 1, "c": 2}, "n": None}
    assert applied.place(("a", "b")).where == "--set a.b"
    assert applied.place(("a", "c")).where == "x.yaml:1"
    assert applied.place(("new",)).where == "--set new.deep.key"


@pytest.mark.parametrize(("key", "part"), [("a.b", "single value"), ("l.0", "a list")])
def test_a_path_through_a_value_without_keys(key: str, part: str) -> None:
    settings, _ = parse_settings([f"{key}=1"])
    with pytest.raises(ConfigError, match=part) as caught:
        apply(parse("a: text\nl: [1]\n", "x.yaml"), settings)
    assert caught.value.code == "config.unknown_key"
    assert caught.value.where == f"--set {key}"
