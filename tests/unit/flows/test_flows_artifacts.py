"""Names of artifacts, limits and runs tell teams, datasets and storages apart."""

import re
from itertools import product

from flows.runs.limits import limit_name
from tasks.artifacts import TEAM, _name, about

TEAMS = ("", "a", "c", "a-b", "a_b")
DATASETS = ("b", "b-c", "b_c", "b--c", "c", "progress")
STORAGES = ("s3://one/", "s3://two/")
KEYS = ("plan", "progress-plan")


def test_no_two_subjects_share_a_name(monkeypatch):
    artifacts, limits = [], set()
    for team, dataset, storage, key in product(TEAMS, DATASETS, STORAGES, KEYS):
        monkeypatch.setenv(TEAM, team)
        with about("", storage), about(dataset):
            artifacts.append(_name(key))
        limits.add(limit_name(dataset, team))
    assert len(set(artifacts)) == len(artifacts)
    assert all(re.fullmatch("[a-z0-9-]+", name) for name in artifacts)
    assert len(limits) == len(TEAMS) * len(DATASETS)
