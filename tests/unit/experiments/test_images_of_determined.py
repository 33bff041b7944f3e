"""Rule D7: what each release of Determined can use in the image that it runs by default."""

import pytest

from larder.experiments.advice import advise
from larder.experiments.consumers.determined.config import config_files
from larder.experiments.consumers.determined.template import has_old_image, has_own_image
from larder.experiments.delivery import BY_LARDER, ConfigRequest
from tests.unit.experiments.test_advice import Limits, facts_of

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
def test_the_config_says_what_the_image_can_read(
    release, image, delivery, reads, delivered, cluster, template
):
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
