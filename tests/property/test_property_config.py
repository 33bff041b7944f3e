"""Interpolation, --set and YAML work for any string."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from larder.config.config_document import expand, interpolate
from larder.config.load import load_dataset
from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.config.set_arguments import apply, parse_settings
from larder.config.text import parse
from larder.errors import CODES, ConfigError, ProblemsError
from larder.pipeline.settings import load_settings

CONFIGS = Path(__file__).parents[2] / "configs"
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
KEYS = st.from_regex(r"[a-z_-][A-Za-z0-9_-]{0,4}", fullmatch=True)
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff")
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
SCALARS = SCALARS | TEXTS
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
)


@given(TEXTS, st.dictionaries(NAMES, TEXTS))
def test_a_string_with_doubled_dollars_is_unchanged(text, environ):
    expansion = interpolate(text.replace("$", "$$"), environ)
    assert (expansion.text, expansion.variables, expansion.missing) == (text, (), ())


@given(st.lists(st.tuples(NAMES, TEXTS.map(lambda text: text.replace("$", "")))))
def test_every_variable_is_filled_in_once_or_missing(parts):
    text = "".join(f"${{{name}}}{literal}" for name, literal in parts)
    everything = {name: f"<${{{name}}}>" for name, _ in parts}
    expansion = interpolate(text, everything)
    assert expansion.text == "".join(f"{everything[name]}{literal}" for name, literal in parts)
    assert expansion.variables == tuple(dict.fromkeys(name for name, _ in parts))
    assert interpolate(text, {}).missing == expansion.variables


@given(TREES, st.dictionaries(NAMES, TEXTS))
def test_expansion_keeps_the_shape(tree, environ):
    escaped = json.loads(json.dumps(tree).replace("$", "$$"))
    document = parse(json.dumps(escaped), "x")
    expanded = expand(document, environ).document.value
    assert _unkeyed(expanded) == _unkeyed(tree)


def _unkeyed(tree: Any) -> Any:
    if isinstance(tree, dict):
        return [_unkeyed(value) for value in tree.values()]
    return [_unkeyed(value) for value in tree] if isinstance(tree, list) else tree


@given(st.dictionaries(KEYS, TREES, max_size=3), st.lists(KEYS, min_size=1, max_size=3), TREES)
def test_a_setting_is_found_where_it_was_put(tree, path, value):
    key = ".".join(path)
    settings = parse_settings([f"{key}={json.dumps(value)}"]).dataset
    problems: list[ConfigError] = []
    applied = apply(parse(json.dumps(tree), "x"), settings, problems)
    for problem in problems:
        _check(problem, "config.unknown_key")
        return
    found = applied.value
    for part in path:
        found = found[part]
    assert found == value
    assert applied.place(tuple(path)).where == f"--set {key}"
    rest = {name: each for name, each in applied.value.items() if name != path[0]}
    assert rest == {name: each for name, each in tree.items() if name != path[0]}


@given(text=st.text(max_size=60) | TREES.map(json.dumps), arguments=st.lists(TEXTS, max_size=2))
@settings(deadline=None)
def test_whatever_is_wrong_is_one_config_error(tmp_path_factory, text, arguments):
    directory: Path = tmp_path_factory.getbasetemp() / "any-config"
    (directory / "datasets").mkdir(parents=True, exist_ok=True)
    (directory / "datasets/x.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load_dataset(directory, "x", arguments, {})
    except ConfigError as error:
        _check(error, *CODES)


def _check(error: ConfigError, *codes: str) -> None:
    assert error.code in codes
    assert "\n" not in str(error)


SPECIAL = st.one_of(
    st.sampled_from(["s3://", "s3:///x", "file://h", "~no-such-user/x", "http://", "h:1"]),
    st.sampled_from([".nan", "-.inf", "1e400", "9" * 400, "true", "1", "\u0663"]),
    st.sampled_from(["\0", "\udcff", "${A}", "${", "!!x", "[[[", "{train: 0.9}", "{hash: x}"]),
    st.sampled_from(
        [
            "{by: hash, seed: 7, fractions: {a: .nan}}",
            "{by: hash, seed: 1, fractions: {a: 1, b: 0}}",
        ]
    ),
)
ARGUMENTS = SPECIAL | TEXTS | TREES.map(json.dumps) | st.text(max_size=20)


def keys_of(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """The dotted keys of a file, those of mappings too."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        yield key
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from keys_of(inner, f"{key}.")


FIELDS = [*keys_of(Dataset, ""), *keys_of(Cluster, "cluster."), "splits.train", "splits.hash"]


@given(st.dictionaries(st.sampled_from(FIELDS), ARGUMENTS, min_size=1, max_size=3))
@settings(max_examples=3 * settings.default.max_examples)
@example({"shards.format": "{train: 0.9}"})
def test_any_setting_gives_a_config_error_or_valid_settings(given_settings):
    arguments = [f"{key}={value}" for key, value in given_settings.items()]
    try:
        asked = load_settings(
            "files", config_dir=CONFIGS, settings=["source.url=./x", *arguments], environ={}
        )
    except ConfigError as error:
        for problem in ProblemsError.of(error):
            _check(problem, *CODES)
        return
    for model in (asked.dataset, asked.cluster):
        assert type(model).model_validate(model.model_dump(by_alias=True)) == model
        json.dumps(model.model_dump(), allow_nan=False).encode()
