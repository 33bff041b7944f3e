from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.config.models import Mount
from larder.errors import ConfigError
from larder.experiments.model import WORK_DIR, Binding, bind, container_target, mount_problems


def mount(host_path: str, container_path: str, *, read_only: bool = True) -> Mount:
    return Mount(host_path=host_path, container_path=container_path, read_only=read_only)


def test_without_mounts_the_storage_is_mounted_at_its_own_path() -> None:
    assert bind("file:///srv/team/data/", ()) == Binding(
        "/srv/team/data", "/srv/team/data", True, "/srv/team/data"
    )


def test_the_data_is_found_below_the_mount_that_contains_it() -> None:
    mounts = (mount("/mnt/data", "/data"), mount("/mnt/other", "/other"))
    assert bind("/mnt/data/team/a", mounts) == Binding("/mnt/data", "/data", True, "/data/team/a")


def test_a_directory_that_is_the_mount_itself() -> None:
    assert bind("/mnt/data", (mount("/mnt/data", "/data"),)).data_path == "/data"


def test_a_sibling_with_the_same_prefix_does_not_contain_it() -> None:
    with pytest.raises(ConfigError, match="host_path of exactly one mount, not none of them"):
        bind("/mnt/database", (mount("/mnt/data", "/data"),))


def test_two_mounts_that_contain_it_are_ambiguous() -> None:
    mounts = (mount("/mnt", "/a"), mount("/mnt/data", "/b"))
    with pytest.raises(ConfigError, match="not /mnt, /mnt/data"):
        bind("/mnt/data/x", mounts)


def test_paths_are_normalised_before_they_are_compared() -> None:
    mounts = (mount("//mnt/./data//", "/data/"),)
    assert bind("file:///mnt/data/x//y/", mounts) == Binding(
        "/mnt/data", "/data", True, "/data/x/y"
    )


def test_a_whole_file_system_can_be_mounted() -> None:
    assert bind("/srv/x", (mount("/", "/host"),)).data_path == "/host/srv/x"


def test_read_only_is_kept() -> None:
    assert bind("/mnt/x", (mount("/mnt", "/mnt", read_only=False),)).read_only is False


@pytest.mark.parametrize("container_path", ["", ".", "./", "/run/determined/workdir", "/run", "/"])
def test_a_mount_that_hides_the_model_code_is_refused(container_path: str) -> None:
    with pytest.raises(ConfigError, match=r"0\.container_path must not be .*hide the model code"):
        bind("/mnt/x", (mount("/mnt", container_path),))


@pytest.mark.parametrize(
    ("host_path", "container_path", "words"),
    [
        ("mnt", "/data", "0.host_path must be an absolute path, not 'mnt'"),
        ("/mnt/../etc", "/data", r"0.host_path must not contain \.\."),
        ("/mnt", "/data/../x", r"0.container_path must not contain \.\."),
        ("/mnt", "data", "0.container_path must be absolute"),
    ],
)
def test_an_unusable_path_is_refused(host_path: str, container_path: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        bind("/mnt/x", (mount(host_path, container_path),), where="cluster here")
    assert caught.value.code == "config.path"
    assert caught.value.where == "cluster here"


@pytest.mark.parametrize("other", ["/data", "/data/", "//data", "/./data"])
def test_the_same_container_path_twice_is_refused(other: str) -> None:
    with pytest.raises(ConfigError, match="is also the container_path of mount 0"):
        bind("/mnt/x", (mount("/mnt", "/data"), mount("/srv", other)))


@pytest.mark.parametrize("url", ["data", "./data", "file://data", "/srv/../data", "file:///a/.."])
def test_a_local_directory_that_is_not_absolute_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        bind(url, ())


@pytest.mark.parametrize("url", ["/srv/{a,b}", "/srv/a::b", "/srv/a\\b"])
def test_a_path_that_brace_patterns_would_misread_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="brace patterns"):
        bind(url, ())


def test_a_path_is_taken_literally() -> None:
    assert bind("file:///srv/a%20b #1?", ()).data_path == "/srv/a%20b #1?"


def test_relative_container_paths_meet_in_the_work_directory() -> None:
    found = [
        {"host_path": "/a", "container_path": "sub"},
        {"host_path": "/b", "container_path": f"{WORK_DIR}/sub/"},
    ]
    assert [place for place, _ in mount_problems(found)] == ["1.container_path"]


segments = st.lists(st.sampled_from(["a", "b", "", "."]), min_size=1, max_size=5)


@given(segments, st.integers(min_value=0, max_value=5), st.booleans())
def test_the_container_path_plus_the_rest_is_the_data_path(
    parts: list[str], cut: int, slash: bool
) -> None:
    host = "/mnt/" + "/".join(parts[:cut])
    local = "/mnt/" + "/".join(parts) + ("/" if slash else "")
    binding = bind(local, (mount(host, "/data"),))
    rest = binding.data_path.removeprefix(binding.container_path)
    assert container_target(binding.host_path + rest) == container_target(local)
