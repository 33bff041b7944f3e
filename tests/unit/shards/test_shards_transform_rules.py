"""A segment of an older release, which transformed images by other rules, is told from new ones."""

import pytest

from larder.config.shape import Transform
from larder.errors import FatalError
from larder.segments.image_rules import check_codecs
from larder.shards.images.transform import codec_versions


def test_images_are_not_transformed_for_a_segment_of_other_rules():
    codecs = dict(codec_versions())
    check_codecs(Transform(codecs=codecs))
    older = {name: version for name, version in codecs.items() if name != "rules"}
    with pytest.raises(FatalError, match="rules None, here 2"):
        check_codecs(Transform(codecs=older))
