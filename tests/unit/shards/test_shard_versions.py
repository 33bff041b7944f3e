"""Formats of shards that another release or library wrote."""

from dataclasses import replace

import pytest

from larder.config.shape import ImageOptions, Transform
from larder.segments.shard import format_to_write
from larder.shards.formats import FORMATS, shard_format
from larder.shards.images.transform import codec_versions
from larder.versions.documents import Shape
from tests.support.errors import larder_error


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_has_the_version_of_its_shards_and_refuses_a_newer_one(name):
    current = shard_format(name).version
    assert shard_format(name).oldest_kept <= current
    assert shard_format(name, version=current - 1).version == current - 1
    assert shard_format(name).version == current
    with larder_error("config.invalid_value"):
        shard_format(name, version=current + 1)


@pytest.mark.parametrize("name", FORMATS)
def test_a_machine_writes_only_the_planned_form(name):
    here = shard_format(name)
    codecs = dict(codec_versions())
    images, older = (
        ImageOptions(transform=Transform(codecs=each))
        for each in (codecs, {**codecs, "rules": "1"})
    )
    planned = Shape(name, here.version, 1_000, {}, None, library=here.library, images=images)
    assert format_to_write(planned).version == here.version
    others = {"format_version": here.version - 1}, {"library": "pyarrow 1.0"}, {"images": older}
    for other in others:
        with larder_error("run.failed"):
            format_to_write(replace(planned, **other))
