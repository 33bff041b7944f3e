"""The flow that reads a version again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import flow
from pydantic import StrictBool, StrictFloat, StrictInt

from flows.runs.flow_run import call_flow, flow_run
from flows.runs.page import findings_table
from larder.cli.display import Display
from larder.pipeline.settings import load_settings
from larder.progress import StageTimes
from larder.verify.findings import DamagedError
from larder.verify.report import finding_rows, verify_lines
from larder.verify.run import VerifySettings
from larder.verify.run import verify as compose
from tasks.runner import task_runner


@flow(
    name="verify",
    flow_run_name="verify {dataset} for {cluster}",
    persist_result=False,
    validate_parameters=True,
)
def verify(
    dataset: str,
    cluster: str = "local",
    settings: list[str] | None = None,
    config_dir: str = "configs",
    version: str = "latest",
    sample: StrictFloat | None = None,
    seed: StrictInt | None = None,
    repair: StrictBool = False,
) -> Any:
    """Read a published version again, and compare it with what was published.

    Args:
        dataset: Name of a file in configs/datasets.
        cluster: Name of a file in configs/clusters.
        settings: key.path=value pairs that override the dataset file, or the cluster file with
            the prefix cluster.
        config_dir: The directory with all configuration files.
        version: ID of the version, or a tag.
        sample: Percentage of the shards and cache files to read; all by default.
        seed: Of the choice of these; another one for every run by default.
        repair: Whether to make again what is damaged.

    Returns:
        The JSON document of the run; if it was stopped, Prefect's state Cancelled. If something is
        damaged, the run fails, and its findings are a table.
    """

    def work(times: StageTimes) -> dict[str, Any]:
        loaded = load_settings(
            dataset,
            cluster,
            config_dir=Path(config_dir),
            settings=settings or (),
            reads_source=repair,
        )
        options = VerifySettings(loaded, version, sample, seed, repair)
        with task_runner(loaded.workers, times) as runner:
            try:
                document = compose(options, runner)
            except DamagedError as error:
                _tabulate(error.document)
                raise
        _tabulate(document)
        return document

    return flow_run(work, verify_lines, artifact="verify")


def _tabulate(document: Mapping[str, Any]) -> None:
    findings_table(finding_rows(document), document["found"])


def run_verify(parameters: dict[str, Any], display: Display, *, named: bool) -> dict[str, Any]:
    """Run the flow in this process.

    Args:
        parameters: The parameters of the flow.
        display: Reports progress of every stage.
        named: Whether the user configured the server, and so wants to know the run's address.

    Returns:
        The JSON document of the run.

    Raises:
        DamagedError: Something is damaged; with the document.
        FatalError: ``run.server``: Prefect's server cannot be reached, or refuses the request.
        KeyboardInterrupt: The user interrupted the run, or cancelled it in Prefect.
    """
    return call_flow(verify, parameters, display, named=named)
