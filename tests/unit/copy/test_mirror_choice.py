import pytest

from larder.copy.site import Site, choose_mirror

EAST, WEST = Site("aws", "us-east-1", bucket="a"), Site("aws", "us-west-2", bucket="b")
NOWHERE = Site("aws", bucket="c")
DIRECTORY = Site("file")


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("source", [EAST, WEST, NOWHERE, DIRECTORY])
@pytest.mark.parametrize("setting", [True, False])
def test_a_setting_is_obeyed(setting, source, again):
    assert choose_mirror(setting, source, WEST, read_again=again).wanted is setting


@pytest.mark.parametrize(
    ("source", "storage", "again", "wanted"),
    [
        (DIRECTORY, DIRECTORY, True, False),
        (DIRECTORY, WEST, True, False),
        (WEST, WEST, True, False),
        (NOWHERE, WEST, True, False),
        (EAST, WEST, False, False),
        (EAST, WEST, True, True),
        (EAST, DIRECTORY, True, True),
        (EAST, Site("gcp", "us-central1"), True, True),
        (Site("server", server="a:1"), Site("server", server="b:1"), True, True),
    ],
)
def test_auto(source, storage, again, wanted):
    assert choose_mirror("auto", source, storage, read_again=again).wanted is wanted
