import json
from pathlib import Path
from typing import Any

import pytest

from larder.store.base import Store
from tests.support.roles import ACTIONS, ROLES

POLICIES = Path(__file__).parents[2] / "deployments" / "policies"
NAMES = [*ROLES, "prune"]
OF_BUCKET = {"s3:ListBucket", "s3:ListBucketMultipartUploads"}


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((POLICIES / name).read_text(encoding="utf-8"))
    return found


def needed(provider: str, role: str) -> set[str]:
    return {action for method in ROLES[role] for action in ACTIONS[provider][method]}


def test_there_is_a_policy_for_each_role_and_no_other():
    expected = {f"{cloud}-{name}.json" for cloud in ("aws", "gcp") for name in NAMES}
    assert {path.name for path in POLICIES.glob("*.json")} == expected
    text = (POLICIES / "README.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in expected)


@pytest.mark.parametrize("role", ROLES)
def test_aws_policies_allow_exactly_what_is_needed(role):
    document = read(f"aws-{role}.json")
    assert document["Version"] == "2012-10-17"
    bucket, objects = document["Statement"]
    assert bucket["Effect"] == objects["Effect"] == "Allow"
    assert {*bucket["Action"], *objects["Action"]} == needed("s3", role)
    assert set(bucket["Action"]) <= OF_BUCKET
    assert not OF_BUCKET & set(objects["Action"])
    assert objects["Resource"].startswith(bucket["Resource"] + "/")
    (prefix,) = bucket["Condition"]["StringLikeIfExists"]["s3:prefix"]
    assert objects["Resource"].endswith(prefix)


@pytest.mark.parametrize("role", ROLES)
def test_gcp_roles_include_exactly_what_is_needed(role):
    document = read(f"gcp-{role}.json")
    assert set(document["includedPermissions"]) == needed("gs", role)
    assert document["title"]
    assert document["stage"] == "GA"


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_who_prunes_may_not_do_more_than_who_writes(cloud):
    document = read(f"{cloud}-prune.json")
    if cloud == "gcp":
        assert set(document["includedPermissions"]) == needed("gs", "storage-writer")
        return
    allowed = {action for each in document["Statement"] for action in each["Action"]}
    assert allowed < needed("s3", "storage-writer")
    assert "s3:DeleteObject" in allowed


@pytest.mark.parametrize("provider", ACTIONS)
def test_the_table_has_every_method_of_a_store(provider):
    """A new one needs a row, and perhaps a permission in the policies."""
    methods = {
        name
        for base in Store.__mro__
        if base.__module__ == Store.__module__
        for name, value in vars(base).items()
        if callable(value) and not name.startswith("_")
    }
    made_of_others = {"sync", "get_each"}
    assert methods - made_of_others <= ACTIONS[provider].keys()
