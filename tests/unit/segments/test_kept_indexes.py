import pwd

from larder.config.models.dataset import Dataset
from larder.pipeline.planning.expanding import FOLDER, kept_indexes
from larder.store import open_store
from larder.store.base import Store


def dataset(url: str, **source: str) -> Dataset:
    return Dataset.model_validate({"name": "d", "source": {"url": url, **source}})


def bucket(url: str = "s3://bucket/in") -> Store:
    return open_store(url, region="us-east-1", endpoint="http://127.0.0.1:1")


def test_every_source_has_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LARDER_CACHE_DIR", str(tmp_path))
    found = [
        kept_indexes(dataset("s3://bucket/in"), bucket()),
        kept_indexes(dataset("s3://bucket/in", endpoint="http://127.0.0.1:9"), bucket()),
        kept_indexes(dataset("s3://bucket/other"), bucket("s3://bucket/other")),
    ]
    urls = {store.url for store in found if store}
    assert len(urls) == 3
    assert all(url.startswith(f"file://{tmp_path}/{FOLDER}/") for url in urls)
    assert list(tmp_path.iterdir()) == [], "nothing is written before there is an index"


def test_nothing_of_a_directory_is_kept(tmp_path):
    assert kept_indexes(dataset(str(tmp_path)), open_store(str(tmp_path))) is None


def test_nothing_is_kept_for_a_user_without_a_home(monkeypatch):
    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.delenv("LARDER_CACHE_DIR", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert kept_indexes(dataset("s3://bucket/in"), bucket()) is None
