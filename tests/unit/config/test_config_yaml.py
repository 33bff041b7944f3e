"""YAML with lines: what is read, what is refused, and where."""

from pathlib import Path

import pytest

from larder.config.text.yaml import MAX_FILE_BYTES, parse, read, scalar
from larder.errors import ConfigError


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
        ("7", 7),
        ("-7", -7),
        ("010", 10),
        ("0o17", 15),
        ("0xff", 255),
        ("1e-3", 0.001),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2026-11-21", "2026-11-21"),
        ("1_000", "1_000"),
        ("150 MB", "150 MB"),
        ("**/*.JPEG", "**/*.JPEG"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


def test_values_and_their_lines() -> None:
    document = parse("a: 1\nb:\n  c: '2'\n  d:\n  - x\n  - {e: !!str 3}\n", "x.yaml")
    assert document.value == {"a": 1, "b": {"c": "2", "d": ["x", {"e": "3"}]}}
    assert document.place(("b", "c")).where == "x.yaml:3"
    assert document.place(("b", "d", 1, "e")).where == "x.yaml:6"
    assert document.place(("b", "zzz")).where == "x.yaml:2"
    assert document.place(("zzz",)).where == "x.yaml:1"


def test_keys_are_strings_as_written() -> None:
    assert parse("1: a\ntrue: b\n0x10: c\n", "x").value == {"1": "a", "true": "b", "0x10": "c"}


def test_anchors_and_merges() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 3}\nx: {<<: [*base, *more], c: 4}\n"
    assert parse(text, "x").value["x"] == {"a": 1, "b": 2, "c": 4}


@pytest.mark.parametrize(
    ("text", "where", "part"),
    [
        ("a: 1\nb: [1,\n", "x.yaml:3", "expected"),
        ("a:\n\tb: 1", "x.yaml:2", "\\t"),
        ("a: *b", "x.yaml:1", "alias"),
        ("a: &b [*b]", "x.yaml:1", "refers to a value that contains it"),
        ("a: 1\nb: !!python/object/apply:os.system [x]", "x.yaml:2", "tag !!python"),
        ("a: !mine x", "x.yaml:1", "the tag that begins with ! is not"),
        ("a: !!int x", "x.yaml:1", "does not fit its tag"),
        ("? [a]\n: b", "x.yaml:1", "key"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2", "another document"),
        ("<<: 1", "x.yaml:1", "<<"),
        ("a: \x01", "x.yaml", "special characters"),
        ("[" * 4000, "x.yaml", "deeply"),
    ],
)
def test_invalid_yaml_is_refused(text: str, where: str, part: str) -> None:
    error = refused(text)
    assert error.code == "config.invalid_yaml"
    assert error.where == where
    assert part in error.message.replace("'", "") or part in error.message


def test_a_duplicate_key_names_both_lines() -> None:
    error = refused("a:\n  b: 1\n  c: 2\n  b: 3\n")
    assert error.code == "config.duplicate_key"
    assert str(error) == "x.yaml:4: duplicate key 'a.b' (first on line 2); keep one of the two"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    for path, part in ((tmp_path / "latin.yaml", "UTF-8"), (tmp_path, "directory")):
        with pytest.raises(ConfigError, match=part) as caught:
            read(path)
        assert caught.value.code == "config.unreadable"
        assert caught.value.where == str(path)


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1")
    assert read(tmp_path / "bom.yaml").value == {"a": 1}


def _bomb(levels: int, width: int) -> str:
    """Aliases of aliases: ``width`` to the power of ``levels`` values in a few hundred bytes."""
    lines = [f"a0: &a0 [{', '.join(['lol'] * width)}]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        _bomb(40, 9),
        "a0: &a0 {x: 1}\n"
        + "".join(f"a{i}: &a{i}\n  <<: [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60)),
        "a: &a '" + "x" * 100_000 + "'\nb: [" + ", ".join(["*a"] * 1000) + "]\n",
    ],
    ids=["lists", "merges", "texts"],
)
def test_aliases_of_aliases_are_refused_before_they_fill_the_memory(text: str) -> None:
    with pytest.raises(ConfigError, match="aliases repeat more than") as caught:
        parse(text, "x.yaml")
    assert caught.value.code == "config.invalid_yaml"
    assert caught.value.where.startswith("x.yaml:")


def test_many_values_and_a_few_aliases_are_fine() -> None:
    text = "a: &a [" + ", ".join(["x"] * 20_000) + "]\nb: *a\nc: *a\n"
    assert [len(part) for part in parse(text, "x").value.values()] == [20_000] * 3


def test_an_endless_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(ConfigError, match="larger than") as caught:
        read(path)
    assert caught.value.code == "config.unreadable"


@pytest.mark.parametrize("text", ["a: *hunter2", "a: !hunter2", "a: !hunter2! x"])
def test_a_password_that_is_yaml_is_not_repeated(text: str) -> None:
    error = refused(text)
    assert error.code == "config.invalid_yaml"
    assert "hunter2" not in str(error)
