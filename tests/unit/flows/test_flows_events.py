"""Events of published versions, by which automations tell datasets and teams apart."""

import pytest

from larder.versions.runs import RunRecord
from tasks import artifacts


@pytest.mark.parametrize(("team", "suffix"), [("", ""), ("vision", "@vision")])
def test_the_resource_of_an_event_has_the_team(monkeypatch, team, suffix):
    sent = []
    monkeypatch.setattr(artifacts, "emit_event", lambda *event, payload: sent.append(event))
    monkeypatch.setattr(artifacts, "versions_table", lambda settings: None)
    monkeypatch.setenv(artifacts.TEAM, team)
    record = RunRecord(dataset="imagenet", version="0" * 64, command="prepare", published=True)
    artifacts.recorded((None, record))
    assert {resource["prefect.resource.id"] for _, resource in sent} == {
        f"larder.dataset.imagenet{suffix}"
    }
