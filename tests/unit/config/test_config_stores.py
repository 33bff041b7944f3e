"""Locations: the keys of each provider, and what is said about the others'."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from larder.config.load import load_dataset
from larder.config.models.locations import Location
from larder.config.urls import GIVE_UP_SECONDS, Access
from larder.errors import ProblemsError

ROLE = "arn:aws:iam::123456789012:role/team/reader"
KEY_ID = "1234abcd-12ab-34cd-56ef-1234567890ab"
GCP_KEY = "projects/p-1/locations/us/keyRings/ring/cryptoKeys/key"


def source(tmp_path: Path, text: str, settings: Sequence[str] = (), **environ: str) -> Location:
    """The source that a dataset file describes in one line."""
    (tmp_path / "datasets").mkdir(exist_ok=True)
    (tmp_path / "datasets/x.yaml").write_text(f"source: {text}\n")
    return load_dataset(tmp_path, "x", settings, environ).source


def refusals(tmp_path: Path, text: str, *settings: str, **environ: str) -> list[str]:
    with pytest.raises(ProblemsError) as caught:
        source(tmp_path, text, settings, **environ)
    return [
        f"{each.code.removeprefix('config.')} {each.message.partition(': ')[0]}"
        for each in caught.value.problems
    ]


def test_a_location_says_how_its_store_is_reached(tmp_path):
    text = f"{{url: 's3://bucket', region: a, endpoint: 'http://h:1', profile: p, role: '{ROLE}'}}"
    expected = Access(endpoint="http://h:1", region="a", profile="p", role=ROLE)
    assert source(tmp_path, text).access == expected
    assert expected.give_up_seconds == GIVE_UP_SECONDS
    text = f"{{url: 's3://bucket', block: aws-credentials/a-b, kms_key: {KEY_ID}}}"
    assert source(tmp_path, text, ["source.requester_pays=true"]).access == Access(
        block="aws-credentials/a-b", kms_key=KEY_ID, requester_pays=True
    )
    text = f"{{url: 'gs://bucket', project: p-12345, kms_key: {GCP_KEY}, block: secret/x}}"
    assert source(tmp_path, text).access == Access(
        project="p-12345", kms_key=GCP_KEY, block="secret/x"
    )
    assert source(tmp_path, "{url: './here'}").access == Access()
    assert source(tmp_path, "{url: 'gs://bucket', anonymous: true}").access.anonymous


@pytest.mark.parametrize("url", ["./here", "gs://bucket", "s3://bucket"])
def test_keys_of_other_providers_may_say_nothing(url, tmp_path):
    keys = "region: '', endpoint: null, profile: '${NO:-}', anonymous: '${FALSE}', project: ''"
    assert source(tmp_path, f"{{url: '{url}', {keys}}}", FALSE="false").access == Access()


OTHERS = "{url: ./here, endpoint: 'http://h:1', anonymous: true, kms_key: k, project: p-12345}"
REFUSED: dict[str, list[tuple[str, list[str]]]] = {
    "a key of another provider": [
        (OTHERS, ["endpoint", "anonymous", "kms_key", "project"]),
        ("{url: 'gs://bucket', profile: p}", ["profile"]),
        ("{url: 's3://bucket', project: p-12345}", ["project"]),
        ("{url: 'gs://bucket', block: aws-credentials/x}", ["block"]),
        ("{url: 's3://bucket', block: gcp-credentials/my-block}", ["block"]),
    ],
    "no URL, and of nothing else": [
        ("{url: '', region: a, project: p-12345}", ["url"]),
        ("{url: 'gs:/bucket', profile: p}", ["url"]),
        ("{url: null, profile: p}", ["url"]),
        ("{profile: p}", ["url"]),
    ],
    "no reference": [
        ("{url: 's3://bucket', role: reader}", ["role"]),
        ("{url: 's3://bucket', role: 'arn:aws:iam::12345:role/x'}", ["role"]),
        (f'{{url: "s3://bucket", role: "{ROLE}\\n"}}', ["role"]),
        ("{url: 's3://bucket', block: my-block}", ["block"]),
        ("{url: 's3://bucket', block: aws-credentials/My_Block}", ["block"]),
        ("{url: 's3://bucket', profile: 'a[b]'}", ["profile"]),
        ("{url: 's3://bucket', region: us east}", ["region"]),
    ],
    "a contradiction": [
        ("{url: 's3://b-1', anonymous: true, profile: p}", ["anonymous"]),
        ("{url: 'gs://b-1', anonymous: true, block: secret/x}", ["anonymous"]),
        ("{url: 's3://b-1', profile: p, block: secret/x}", ["block"]),
        ("{url: 's3://b-1', inventory: {url: 'gs://b-2'}}", ["inventory.url"]),
        ("{url: './here', inventory: {url: 's3://b-2'}}", ["inventory.url"]),
    ],
}


@pytest.mark.parametrize("why", REFUSED)
def test_keys_are_refused(why, tmp_path):
    for text, keys in REFUSED[why]:
        assert [each.partition("source.")[2] for each in refusals(tmp_path, text)] == keys


def test_a_setting_or_a_variable_decides_about_the_provider(tmp_path):
    text = "{url: 's3://bucket', region: a}"
    assert refusals(tmp_path, text, "source.url=./here") == ["invalid_value source.region"]
    settings = ["source.url=./here", "source.region="]
    assert source(tmp_path, text, settings).url == "./here"
    missing = "{url: '${MISSING}/x', region: a, project: p-12345}"
    assert refusals(tmp_path, missing) == ["missing_variable environment variable not set"]


def test_names_of_gcs_buckets(tmp_path):
    for bucket in ("abc", "a-b_c.d", "0ab", "gcp-public-data-landsat", f"{'a' * 63}.b"):
        assert source(tmp_path, f"{{url: 'gs://{bucket}/p'}}").url == f"gs://{bucket}/p"
    for bucket in ("", "ab", "Upper", "-ab", "ab-", ".ab", "a b", "a,b", "äbc"):
        refused = refusals(tmp_path, f"{{url: 'gs://{bucket}/p'}}")
        assert refused == ["unsupported_url source.url"], bucket


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("role", ROLE),
        ("role", "arn:aws-us-gov:iam::123456789012:role/x"),
        ("role", "arn:aws:iam:::role/of-ceph"),
        ("block", "aws-credentials/my-block"),
        ("block", "secret/my-block"),
        ("kms_key", f"arn:aws:kms:us-east-1:123456789012:key/{KEY_ID}"),
        ("profile", "My profile (2)"),
    ],
)
def test_references_of_s3(key, value, tmp_path):
    found = source(tmp_path, f"{{url: 's3://bucket', {key}: '{value}'}}")
    assert getattr(found, key) == value


def test_a_project_may_be_a_number(tmp_path):
    text = "{url: 'gs://bucket', project: '123456789012', block: gcp-credentials/x}"
    assert source(tmp_path, text).access.project == "123456789012"


def test_a_report_may_be_beside_the_source_or_here(tmp_path):
    for url in ("s3://reports/x/manifest.json", "./objects.csv", "file:///objects.parquet"):
        found: Any = source(tmp_path, f"{{url: 's3://bucket', inventory: {{url: '{url}'}}}}")
        assert found.inventory.url == url
