"""A document that no reader would read is not published."""

from dataclasses import replace

from larder.bounds import DOCUMENT_BYTES
from larder.versions.publish import publish_version
from tests.support.errors import larder_error
from tests.support.stores import keys_of
from tests.unit.versions.test_publish import VERSION


def test_a_document_that_is_longer_than_what_is_read_is_not_published(root):
    """It stood there, and every run from then on found it damaged."""
    long = replace(VERSION, classes=("a" * DOCUMENT_BYTES,))
    with larder_error("run.limit"):
        publish_version(root, long)
    assert keys_of(root) == []
