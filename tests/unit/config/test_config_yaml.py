"""YAML with lines: what is read, what is refused, and where."""

import io

import pytest

from larder.config.config_document import scalar
from larder.config.text import MAX_FILE_BYTES, parse, read, read_template, round_trip
from larder.errors import ConfigError
from tests.support.errors import larder_error


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text, "x.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("-7", -7),
        ("010", 10),
        ("0o17", 15),
        ("0xff", 255),
        ("1e-3", 0.001),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("no", "no"),
        ("12:30", "12:30"),
        ("2026-11-21", "2026-11-21"),
        ("1_000", "1_000"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text, value):
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


def test_values_and_their_lines():
    document = parse("a: 1\nb:\n  c: '2'\n  d:\n  - x\n  - {e: '3'}\n", "x.yaml")
    assert document.value == {"a": 1, "b": {"c": "2", "d": ["x", {"e": "3"}]}}
    assert document.place(("b", "c")).where == "x.yaml:3"
    assert document.place(("b", "d", 1, "e")).where == "x.yaml:6"
    assert document.place(("b", "zzz")).where == "x.yaml:2"
    assert document.place(("zzz",)).where == "x.yaml:1"


def test_keys_are_strings_as_written():
    assert parse("1: a\ntrue: b\n0x10: c\n", "x").value == {"1": "a", "true": "b", "0x10": "c"}


# tests/golden/messages.md has more.
@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: 1\nb: [&b 1, *b]", "x.yaml:2"),
        ("a: 1\nb: !!python/object/apply:os.system [x]", "x.yaml:2"),
        ("a: !!int x", "x.yaml:1"),
        ("? [a]\n: b", "x.yaml:1"),
        ('a: "\\ud83d"', "x.yaml:1"),
        ("a: \x01", "x.yaml"),
        ("[" * 1000, "x.yaml"),
    ],
)
def test_invalid_yaml_is_refused(text, where):
    error = refused(text)
    assert (error.code, error.where) == ("config.invalid_yaml", where)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    with (tmp_path / "endless.yaml").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    for path in (tmp_path / "latin.yaml", tmp_path / "endless.yaml", tmp_path):
        with larder_error("config.unreadable", str(path)):
            read(path)


def test_a_byte_order_mark_is_ignored(tmp_path):
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1")
    assert read(tmp_path / "bom.yaml").value == {"a": 1}


def test_comments_are_kept(tmp_path):
    text = "# head\na: 1.0e-3 # of a\n\nb: &b [x, 'y']\nc: *b\n"
    path, written = tmp_path / "t.yaml", io.StringIO()
    path.write_text(text)
    round_trip().dump(read_template(path), written)
    assert written.getvalue() == text
