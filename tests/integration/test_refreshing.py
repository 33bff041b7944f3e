"""A refresh claims each dataset while it prepares it, as a run of that dataset does."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipeline_lab import directory_lab, images

from larder.jobs.step_runner import InlineRunner
from larder.pipeline.preparing import prepare, refresh
from larder.progress import StageTimes


class Claiming(InlineRunner):
    """Notes what is claimed, and whether a version is there when the claim ends."""

    def __init__(self, versions: list[str]) -> None:
        super().__init__(1, StageTimes())
        self.claims = versions

    @contextmanager
    def claim(self, dataset: str) -> Iterator[None]:
        self.claims.append(f"{dataset} begins")
        yield
        self.claims.append(f"{dataset} ends")


def test_each_dataset_is_claimed_for_itself(tmp_path):
    claims: list[str] = []
    lab = directory_lab(tmp_path, images("ab", 3))
    settings = lab.settings()

    def load() -> object:
        claims.append("loaded")
        return settings

    refresh({"one": load, "two": load}, Claiming(claims))
    assert claims == ["loaded", "d begins", "d ends"] * 2
    lab.only()


def test_a_plan_claims_nothing(tmp_path):
    claims: list[str] = []
    lab = directory_lab(tmp_path, images("ab", 3))
    prepare(lab.settings(), Claiming(claims), plan_only=True)
    assert claims == []
