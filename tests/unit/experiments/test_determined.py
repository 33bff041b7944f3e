import copy
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from larder.config.config_document import scalar
from larder.config.text import read_template
from larder.experiments.advice import advise
from larder.experiments.consumers.determined.config import config_files, render
from larder.experiments.consumers.determined.template import has_old_image, has_own_image
from larder.experiments.consumers.template_conflicts import to_yaml
from larder.experiments.delivery import BY_LARDER, ConfigRequest, DeliveredSplit
from tests.support.errors import larder_error
from tests.unit.experiments.made import VERSION, cluster, delivered
from tests.unit.experiments.test_advice import Limits, facts_of


def test_the_template_is_kept():
    template = {
        "zebra": 1,
        "searcher": {"name": "single", "metric": "loss"},
        "data": {"crop": 224},
        "bind_mounts": [{"host_path": "/scratch", "container_path": "/scratch"}],
        "name": "mine",
    }
    before = copy.deepcopy(template)
    found = render(ConfigRequest(template, *delivered("/srv"), cluster("/srv")))
    assert template == before
    assert found["name"] == "mine"
    assert found["data"]["crop"] == 224
    assert [mount["container_path"] for mount in found["bind_mounts"]] == ["/scratch", "/srv"]
    assert list(found) == list(template)


@pytest.mark.parametrize("template", [{"data": []}, {"bind_mounts": {}}], ids=str)
def test_a_template_of_another_form_is_refused(template):
    with larder_error("config.template"):
        render(ConfigRequest(template, *delivered("/srv"), cluster("/srv")))


REGION, ENDPOINT = "AWS_DEFAULT_REGION=us-west-2", "AWS_ENDPOINT_URL=http://127.0.0.1:9000"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, [REGION, ENDPOINT]),
        (["A=1"], ["A=1", REGION, ENDPOINT]),
        ([ENDPOINT, "A=1"], [ENDPOINT, "A=1", REGION]),
        (["AWS_REGION=us-west-2"], ["AWS_REGION=us-west-2", REGION, ENDPOINT]),
        (
            {"gpu": ["A=1"]},
            {
                "gpu": ["A=1", REGION, ENDPOINT],
                "cpu": [REGION, ENDPOINT],
                "rocm": [REGION, ENDPOINT],
            },
        ),
    ],
)
def test_region_and_endpoint_of_the_bucket_reach_the_container(own, expected):
    local = {"region": "us-west-2", "endpoint": "http://127.0.0.1:9000"}
    here = cluster("s3://bkt/", storage=local)
    template = {"environment": own and {"environment_variables": own}}
    config = render(ConfigRequest(template, *delivered("s3://bkt/"), here))
    assert config["environment"]["environment_variables"] == expected


@pytest.mark.parametrize(
    ("url", "where"),
    [("/srv", "/data/larder/digits"), ("s3://bucket/team", "s3://bucket/team/larder/digits")],
)
def test_many_patterns_become_a_list_and_none_an_empty_one(url, where, template):
    """In the place of none, the dataset's root would be read as a shard."""
    version, contents = delivered(url)
    path = f"versions/{VERSION}/lists/train-0123456789abcdef.txt"
    splits = {
        **contents.splits,
        "train": replace(contents.splits["train"], list=path),
        "test": DeliveredSplit(0, 0, 0, ()),
    }
    contents = replace(contents, splits=splits, cache=None)
    data = render(ConfigRequest(template, version, contents, cluster(url, ("/srv", "/data"))))[
        "data"
    ]
    assert "cache" not in data
    found = data["splits"]
    train = {"list": f"{where}/{path}", "samples": 1437, "shards": 4, "bytes": 4000}
    assert found["train"] == train
    assert found["test"] == {"pattern": "", "samples": 0, "shards": 0, "bytes": 0}
    assert found["validation"]["pattern"].startswith(where)
    assert "list" not in found["validation"]


def test_comments_order_and_aliases_of_the_template_are_kept(tmp_path):
    lines = (
        "# of the team",
        "zebra: &z {a: 1.0e-3} # first",
        "searcher: # second",
        "  metric: 'yes'",
        "  # third",
        "  again: *z",
    )
    path = tmp_path / "t.yaml"
    path.write_text("\n".join(lines) + "\n")
    text = to_yaml(
        render(ConfigRequest(read_template(path), *delivered("/srv"), cluster("/srv"))), ["made"]
    )
    assert text.splitlines()[: len(lines) + 2] == ["# made", "", *lines]


plain = st.one_of(
    st.text(max_size=8),
    st.from_regex(r"[0-9eExob.+-]{1,6}", fullmatch=True),
    st.sampled_from(["no", "on", "null", "~", "12:30", "2026-11-21", "1e-3", "0o7", ".inf", ""]),
    st.sampled_from(["it's", 'a"b', "${HOME}", "a\nb", "a: b", "- x", "#", "%s", "\\", "é\u2028"]),
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.none(),
)


@given(st.dictionaries(st.text(max_size=5), plain, max_size=4))
def test_values_come_back_as_they_were(values):
    assert YAML(typ="safe", pure=True).load(to_yaml(values)) == values


@example("1234567890123456789012345678e012")  # an ID
@given(st.from_regex(r"[0-9eExob.+-]{1,6}|true|Null|~", fullmatch=True))
def test_a_string_stays_a_string_for_yaml_1_2(text):
    written = to_yaml({"a": text}).removeprefix("a: ").rstrip("\n")
    assert written[0] in "'\"" or scalar(written) == text


# By release, as in its master/pkg/schemas/expconf/const.go: pytorch-tensorflow-cpu is built from
# the base with Python 3.9, and pytorch-ngc from NVIDIA's image of 24.03.
PYTHONS = {"0.25.1": 8, "0.26.4": 9, "0.33.0": 9, "0.34.0": 10, "0.38.1": 10}


@pytest.mark.parametrize("release", PYTHONS)
def test_advice_needs_no_newer_python_than_the_image_has(release):
    choices = advise(facts_of(f"determined 2GB/14 cache=2GB release={release}"), Limits())
    possible = {each.delivery for each in choices.options if each.possible}
    assert bool(possible & BY_LARDER) == (PYTHONS[release] >= 10)
    assert "download" in possible
    first = choices.choose("auto", where="")
    if PYTHONS[release] < 10:
        assert first.delivery == "download"
        assert "the default image has Python 3.9 or older" in first.deciding.sentence


@pytest.mark.parametrize(
    ("image", "own"),
    [
        ("", False),
        ("determinedai/environments:py-3.9-pytorch-1.12-tf-2.11-cpu-0.31.0", False),
        ("determinedai/pytorch-tensorflow-cpu:0.33.0", False),
        ("determinedai/environments:py-3.10-pytorch-2.0-cpu-0.31.0", True),
        ("determinedai/pytorch-ngc:0.38.1", True),
        ("determinedai/environments:rocm-5.0-pytorch-1.10-tf-2.7-rocm-622d512", False),
        ("determinedai/environments:rocm-5.6-pytorch-1.3-tf-2.10-rocm-mpich-0736b6d", False),
        ("determinedai/pytorch-infinityhub-dev:622d512", True),
        ("registry.example.com/training:1", True),
    ],
)
def test_an_image_that_may_have_python_3_10_counts_as_ones_own(image, own):
    template = {"environment": {"image": image}}
    assert has_own_image(template) == own
    assert has_old_image(template) == (bool(image) and not own)


def test_an_old_image_of_the_template_counts_in_any_release():
    choices = advise(facts_of("determined 2GB/14 cache=2GB release=0.38.1 old_image"), Limits())
    possible = {each.delivery for each in choices.options if each.possible}
    assert not possible & {*BY_LARDER, "data_layer"}
    first = choices.choose("auto", where="")
    assert first.delivery == "download"
    assert "the template's image has Python 3.9 or older" in first.deciding.sentence


OLD_IMAGE = "determinedai/environments:py-3.9-pytorch-1.12-tf-2.11-cpu-0.31.0"


@pytest.mark.parametrize(
    ("release", "image", "delivery", "reads"),
    [
        ("0.38.1", OLD_IMAGE, "download", "data.splits"),
        ("0.25.1", "", "download", "data.splits"),
        ("0.25.1", "", "stream", "data = larder.open()"),
    ],
)
def test_the_config_says_what_the_image_can_read(release, image, delivery, reads, template):
    if image:
        template["environment"] = {"image": image}
    template["searcher"]["max_length"] = {"batches": 1}
    here = cluster("s3://team/shared", consumer={"release": release})
    config, *others = config_files(
        ConfigRequest(template, *delivered("s3://team/shared", delivery), here)
    )
    assert f"{reads}\n" in config.text
    if delivery == "download":
        assert "import larder" not in others[0].text
