import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.config.patterns import compile_globs, glob_regex
from tests.support.errors import larder_error


def matches(globs: Sequence[str], key: str) -> bool:
    pattern = compile_globs(globs)
    return pattern is not None and pattern.fullmatch(key) is not None


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("*.jpg", ["a.jpg", ".jpg", "é.jpg"], ["a/b.jpg", "a.JPG", "a.jpg.txt", "a.jpg\n"]),
        ("**", ["", "a", "a/b/c", ".hidden", "a\nb"], []),
        ("**/*.jpg", ["a.jpg", "a/b.jpg", "a/b/c.jpg"], ["a.png", "ajpg"]),
        ("a**b", ["ab", "axb", "a/x/b"], ["abx"]),
        ("a***b", ["ab", "a/b"], ["a"]),
        ("?.jpg", ["a.jpg", "é.jpg"], ["ab.jpg", "/.jpg", ".jpg"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "-x", "x"]),
        ("[!a-c]x", ["dx", "-x"], ["ax", "/x", "x"]),
        ("[^a]x", ["bx", "^x"], ["ax"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[!]]", ["["], ["]", "/"]),
        ("[\\]", ["\\"], ["]"]),
        ("{a,b/c}.jpg", ["a.jpg", "b/c.jpg"], ["b.jpg", "{a,b/c}.jpg"]),
        ("{a,{b,c}}{,x}", ["a", "bx", "cx"], ["x", "ax,"]),
        ("{**/,}a", ["a", "x/a"], ["xa"]),
        ("{x/,y/}**/a", ["x/a", "y/z/a"], ["xa", "a"]),
        ("{x,y/}**/a", ["x/a", "y/z/a", "xz/a"], ["xa"]),
        ("x{[,]}", ["x,"], ["x"]),
        ("a,b", ["a,b"], ["a"]),
        ("a}b]", ["a}b]"], ["ab"]),
        ("a+b(c).$^|#", ["a+b(c).$^|#"], ["aab(c).$^|#"]),
        ("a\\*", ["a\\", "a\\b"], ["a*"]),
    ],
)
def test_globs(glob, matching, others):
    assert [key for key in matching if not matches([glob], key)] == []
    assert [key for key in others if matches([glob], key)] == []


@pytest.mark.parametrize(
    "glob", ["a[b", "a[", "[]", "[!]", "a{b", "{a,{b}", "[z-a]", "[a/]", "[+-9]"]
)
def test_invalid_globs_are_refused(glob):
    with larder_error("config.invalid_value"):
        glob_regex(glob)


def test_without_globs_nothing_matches():
    assert compile_globs([]) is None
    assert not matches([], "a")


pieces = st.sampled_from([*"*/?ab.é ", "**", "**/", "[ab]", "[!a]", "{a,b/}", "{*,}", "{**/a,b}"])
keys = st.text("ab./é \n", max_size=8)


@given(st.lists(pieces, max_size=5).map("".join), st.lists(keys, min_size=1, max_size=8))
def test_python_and_arrow_agree(glob, found):
    regex = glob_regex(glob)
    by_column = pc.match_substring_regex(pa.array(found, pa.string()), f"^(?:{regex})$")
    by_key = [re.fullmatch(regex, key) is not None for key in found]
    assert by_column.to_pylist() == by_key


@given(st.text("".join(map(chr, range(0x01, 0x100))), min_size=1, max_size=6))
def test_any_key_can_be_quoted(key):
    quoted = re.sub(r"[][*?{}]", lambda found: "[[]" if found[0] == "[" else f"[{found[0]}]", key)
    assert matches([quoted], key)
    regex = f"^(?:{glob_regex(quoted)})$"
    assert pc.match_substring_regex(pa.array([key]), regex).to_pylist() == [True]


def reference(glob: list[str], segments: list[str]) -> bool:
    """The rule for globs whose segments are ``**``, ``*`` or plain text, by recursion."""
    if not glob:
        return not segments
    if glob[0] == "**":
        if len(glob) == 1:
            return bool(segments)
        return any(reference(glob[1:], segments[at:]) for at in range(len(segments)))
    return bool(segments) and glob[0] in ("*", segments[0]) and reference(glob[1:], segments[1:])


@given(
    st.lists(st.sampled_from(["**", "*", "a", "b"]), min_size=1, max_size=5),
    st.lists(st.sampled_from(["a", "b", "ab", ""]), min_size=1, max_size=5),
)
def test_segments_match_as_by_recursion(glob, segments):
    assert matches(["/".join(glob)], "/".join(segments)) == reference(glob, segments)
