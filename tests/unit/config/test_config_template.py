import warnings

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLWarning

from larder.config.config_document import scalar
from larder.config.text import read_template
from larder.errors import ConfigError
from larder.experiments.consumers.template_conflicts import to_yaml
from tests.support.errors import larder_error


def written(folder, text):
    path = folder / "t.yaml"
    path.write_text(text, "utf-8")
    return path


DIFFERENT = ["yes", "on", "y", "012", "089", "0o17", "0b1", "1e3", "1.5e3", "-0e5", "-.5", "1_000"]
DIFFERENT += ["12:30", "2026-11-21", "2026-11-21T10:00:00.5+02:00", "2026-02-30", "=", "<<"]


@pytest.mark.parametrize(
    "text",
    [*DIFFERENT, "!x y", "!!str 1", "&a [*a]", "&a {b: {c: *a}}", "&a {<<: *a}", "{2026-11-21: 1}"],
)
def test_what_consumers_would_not_all_read_alike_is_refused(text, tmp_path):
    path = written(tmp_path, f"a:\n  hostNetwork: {text}\n")
    with larder_error("config.invalid_yaml", f"{path}:2"):
        read_template(path)


def test_a_refusal_names_the_key_and_both_readings(tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_template(written(tmp_path, "a: [{port: 0123}]\n"))
    assert (
        "a[0].port is a !!int in YAML 1.2, and a !!int, octal in YAML 1.1" in caught.value.message
    )
    assert "0123" not in str(caught.value), "it may be a secret"


def test_keys_that_are_equal_as_numbers_are_refused_without_their_values(tmp_path):
    with larder_error("config.duplicate_key") as caught:
        read_template(written(tmp_path, "a:\n  1: hidden\n  1.0: secret\n"))
    assert not any(value in str(caught.value) for value in ("hidden", "secret"))


plain = st.from_regex(r"[0-9eExobn._:+-]{1,7}", fullmatch=True) | st.from_regex(
    r"[-+]?[0-9]{1,3}\.[0-9]{0,17}(e[-+][0-9]{1,2})?", fullmatch=True
)


@given(plain | st.sampled_from(["~", "null", "True", "FALSE", "+.inf", ".NaN", "-0.0e+5", "1.2.3"]))
def test_what_is_taken_is_read_alike_and_keeps_its_digits(tmp_path_factory, text):
    path = written(tmp_path_factory.getbasetemp(), f"a: {text}\nb: 1\n")
    try:
        template = read_template(path)
        emitted = to_yaml(template)
    except ConfigError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", YAMLWarning)
        values = [YAML(typ="safe", pure=True).load(emitted), yaml.safe_load(emitted)]
    assert {repr(each["a"]) for each in [*values, template]} == {repr(scalar(text))}
    if isinstance(scalar(text), float):
        assert f"a: {text}\n" in emitted


def test_aliases_merges_and_anchors_are_kept(tmp_path):
    text = "base: &b {debug: &t true, n: 1.0e-3}\njob:\n  <<: *b\n  again: *t\n"
    emitted = to_yaml(read_template(written(tmp_path, text)))
    assert yaml.safe_load(emitted) == yaml.safe_load(text)
