import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.config.models.cluster import Mount
from larder.experiments.consumers.determined.mounts import (
    WORK_DIR,
    Binding,
    bind,
    container_target,
    mount_problems,
)
from tests.support.errors import larder_error

Pairs = list[tuple[str, str]]


def mounts(pairs: Pairs) -> list[Mount]:
    return [Mount(host_path=host, container_path=container) for host, container in pairs]


@pytest.mark.parametrize(
    ("url", "pairs", "binding"),
    [
        ("file:///srv/a%20b #1?", [], ("/srv/a%20b #1?",) * 3),
        (
            "/mnt/data/team/a",
            [("/mnt/data", "/data"), ("/mnt/other", "/other")],
            ("/mnt/data", "/data", "/data/team/a"),
        ),
        (
            "file:///mnt/data/x//y/",
            [("//mnt/./data//", "/data/")],
            ("/mnt/data", "/data", "/data/x/y"),
        ),
        ("/srv/x", [("/", "/host")], ("/", "/host", "/host/srv/x")),
    ],
)
def test_the_mount_that_contains_the_storage(url, pairs, binding):
    host, container, data = binding
    assert bind(url, mounts(pairs)) == Binding(host, container, True, data)


@pytest.mark.parametrize(
    ("url", "pairs"),
    [
        ("/mnt/database", [("/mnt/data", "/data")]),
        ("/mnt/data/x", [("/mnt", "/a"), ("/mnt/data", "/b")]),
        *(
            ("/mnt/x", [("/mnt", hiding)])
            for hiding in ("", ".", "./", "/run/determined/workdir", "/run", "/")
        ),
        ("/mnt/x", [("mnt", "/data")]),
        ("/mnt/x", [("/mnt/../etc", "/data")]),
        ("/mnt/x", [("/mnt", "/data/../x")]),
        ("/mnt/x", [("/mnt", "data")]),
        *(
            ("/mnt/x", [("/mnt", "/data"), ("/srv", same)])
            for same in ("/data", "/data/", "//data", "/./data")
        ),
        *((url, []) for url in ("data", "./data", "file://data", "/srv/../data", "file:///a/..")),
        *((url, []) for url in ("/srv/{a,b}", "/srv/a::b", "/srv/a\\b")),
    ],
)
def test_an_unusable_mount_is_refused(url, pairs):
    with larder_error("config.path") as caught:
        bind(url, mounts(pairs), where="cluster here")
    assert caught.value.where in ("cluster here", url)


def test_relative_container_paths_meet_in_the_work_directory():
    both = [
        {"host_path": "/a", "container_path": "sub"},
        {"host_path": "/b", "container_path": f"{WORK_DIR}/sub/"},
    ]
    assert [place for place, _ in mount_problems(both)] == ["1.container_path"]


segments = st.lists(st.sampled_from(["a", "b", "", "."]), min_size=1, max_size=5)


@given(segments, st.integers(min_value=0, max_value=5), st.booleans())
def test_the_container_path_plus_the_rest_is_the_data_path(parts, cut, slash):
    host = "/mnt/" + "/".join(parts[:cut])
    local = "/mnt/" + "/".join(parts) + ("/" if slash else "")
    binding = bind(local, mounts([(host, "/data")]))
    rest = binding.data_path.removeprefix(binding.container_path)
    assert container_target(binding.host_path + rest) == container_target(local)
