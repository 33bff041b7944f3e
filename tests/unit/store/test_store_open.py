import pytest

from larder.errors import ConfigError, ObjectError
from larder.store import RetryStore, local_path, object_url, open_store
from larder.store.keys import check_key
from larder.store.s3 import S3Store
from tests.support.errors import larder_error


@pytest.mark.parametrize("ending", ["", "/"])
def test_schemes(tmp_path, monkeypatch, ending):
    monkeypatch.chdir(tmp_path)
    assert open_store(f"file://{tmp_path}/a b%20{ending}").url == f"file://{tmp_path}/a b%20/"
    assert open_store(f"{tmp_path}/x{ending}").url == f"file://{tmp_path}/x/"
    assert open_store(f"./data/y{ending}").url == f"file://{tmp_path}/data/y/"
    assert open_store(f"memory://m/p{ending}").url == "memory://m/p/"
    assert open_store(f"s3://some-bucket/p/q{ending}").url == "s3://some-bucket/p/q/"
    assert open_store(f"s3://some-bucket{ending}").url == "s3://some-bucket/"
    assert open_store("file:///").url == "file:///"


def test_stores_repeat_their_calls_unless_told_otherwise():
    assert isinstance(open_store("memory://m"), RetryStore)
    assert not isinstance(open_store("memory://m", retry=None), RetryStore)


def test_addresses_are_opened_again_and_files_have_paths(tmp_path):
    store = open_store(str(tmp_path / "a?b#c %25"))
    assert open_store(store.url).url == store.url
    store.put("a/b", b"1")
    assert local_path(store, "a/b").read_bytes() == b"1"
    assert object_url("s3://b/p/", "k/l") == "s3://b/p/k/l"
    assert object_url("file:///", "k") == "file:///k"


@pytest.mark.parametrize("key", ["", "/x", "/x/y/z"])
def test_a_directory_that_a_file_is_in_the_way_of(tmp_path, key):
    (tmp_path / "file").touch()
    for url in (f"{tmp_path}/file{key}", f"file://{tmp_path}/file{key}"):
        with pytest.raises(ConfigError, match="it is not a directory") as caught:
            open_store(url)
        assert (caught.value.code, caught.value.where) == ("config.path", f"{tmp_path}/file")


def test_a_path_that_is_too_long(tmp_path):
    for path in (f"{tmp_path}/{'x' * 300}/y", f"{tmp_path}/{'x/' * 3000}"):
        with pytest.raises(ConfigError, match="the path is too long") as caught:
            open_store(path)
        assert caught.value.code == "config.path"


def test_a_key_that_is_too_long_is_named_once():
    store = S3Store("bucket", "team/data")
    key = "x" * 1_020
    for call in (store.head, store.delete, store.writer):
        with larder_error("object.bad_key", f"s3://bucket/team/data/{key}") as caught:
            call(key)
        assert key not in caught.value.message


def test_the_prefix_counts():
    check_key("x" * 1_024, "s3://bucket/")
    check_key("x" * 1_019, "s3://bucket/team/", prefix="team/")
    for key, prefix in (("x" * 1_025, ""), ("x" * 1_020, "team/"), ("\u00e9" * 510, "team/")):
        with pytest.raises(ObjectError):
            check_key(key, "s3://bucket/", prefix=prefix)
