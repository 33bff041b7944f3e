"""The form of a deployment: options of its drop-downs, and fields below "advanced".

The options are frozen when the flow is deployed. The flow itself accepts every name: a name that a
drop-down did not have goes below "advanced", and the command line has no form.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import coolname.data  # Prefect's
from prefect import Flow
from prefect.runtime import flow_run
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from larder.config.load import names
from tasks.artifacts import team

CONFIGS = "configs"
"""The folder whose files the drop-downs offer."""

_ADVANCED = "advanced"
_OF_UI = re.compile(
    r"(alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|sigma"
    r"|tau|upsilon|phi|chi|psi|omega)\d*-.*"
    r"|(Awesome|Rustic|Small|Gorgeous|Fantastic|Sleek|Intelligent|Unbranded|Refined|Licensed|Generic"
    r"|Practical|Ergonomic|Handcrafted|Tasty|Handmade|Incredible)-.*"
)
"""Names in the forms of both UIs: kappa622-canis-majoris, Rustic-otter."""

_NEWER = ("dataset", "datasets", "cluster")
"""Parameters whose values may be newer than the form."""


class _NamesIn:
    """Makes the names of the files in a folder the only values in the schema of a parameter."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        options = names(Path(CONFIGS), self._folder)
        return {**schema, "enum": options} if options else schema


DatasetName = Annotated[str, _NamesIn("datasets")]
ClusterName = Annotated[str, _NamesIn("clusters")]


class Overrides(BaseModel):
    """What every run can change beside its main parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, title="Advanced")

    settings: list[str] = Field(
        [],
        title="Overrides",
        description="key.path=value pairs that override fields, as --set of the command does.",
        json_schema_extra={"items": {"type": "string", "pattern": "^[^=]+="}},
    )
    config_dir: str = Field(
        CONFIGS, title="Config folder", description="The directory with all configuration files."
    )


class OtherCluster(Overrides):
    """The same for a run with a cluster, which may be newer than the form."""

    other_cluster: str = Field(
        "",
        title="Other cluster",
        description="A cluster that the drop-down does not have yet; it wins over the drop-down.",
    )


class OtherNames(OtherCluster):
    """The same for a run of a dataset."""

    other_dataset: str = Field(
        "",
        title="Other dataset",
        description="A dataset that the drop-down does not have yet; it wins over the drop-down.",
    )


class OtherDatasets(OtherCluster):
    """The same for a run of several."""

    other_datasets: list[str] = Field(
        [],
        title="Other datasets",
        description="Datasets that the form does not have yet, in place of those that it has.",
    )


class Output(OtherNames):
    """The same for a run that writes configs."""

    output: str = Field(
        "",
        title="Output folder",
        description="Where configs are written; by default out/CLUSTER/DATASET.",
    )


NO_OTHER_CLUSTER = OtherCluster()
NO_OTHER_DATASETS = OtherDatasets()
NO_OTHER_NAMES = OtherNames()
NO_OUTPUT = Output()


def command_parameters(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the command for a form, without fields that the form leaves open."""
    main = {name: value for name, value in form.items() if name != _ADVANCED and value is not None}
    advanced = form.get(_ADVANCED, {})
    if isinstance(advanced, BaseModel):
        advanced = advanced.model_dump()
    filled = {name: value for name, value in advanced.items() if value not in (None, "")}
    others = {
        name: filled.pop(f"other_{name}", None) for name in ("dataset", "datasets", "cluster")
    }
    return {**main, **filled, **{name: other for name, other in others.items() if other}}


def form_of(flow: Flow[..., Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Fill the form of a flow with the parameters of its command."""
    fields = inspect.signature(flow.fn).parameters
    if _ADVANCED not in fields:
        return dict(parameters)
    form = {name: value for name, value in parameters.items() if name in fields}
    advanced = {
        name: value
        for name, value in parameters.items()
        if name not in fields and value is not None
    }
    return {**form, _ADVANCED: advanced}


def run_name(template: str) -> Callable[[], str]:
    """Make a function that names the runs of a flow: ``prepare imagenet for aws-us-west-2``.

    A name that a person has given is kept. Nothing tells it from a name that Prefect has made up,
    except its words.
    """

    def name() -> str:
        given = str(flow_run.name or "")
        if given and not _made_up(given):
            return given
        parameters = command_parameters(flow_run.parameters)
        what = template.format(**parameters)
        place = str(parameters.get("storage") or parameters.get("cluster") or "")
        at = f" at {place}" if place and place not in what.split() else ""
        details = ", ".join(filter(None, (team(), "plan only" if parameters.get("plan") else "")))
        return f"{what}{at} ({details})" if details else f"{what}{at}"

    return name


def _made_up(name: str) -> bool:
    """Whether the server (noisy-otter) or its UI makes up such names."""
    groups: dict[str, Any] = coolname.data.config
    words = {word for group in groups.values() for word in group.get("words", ())}
    pair = name.split("-")
    return (len(pair) == 2 and words.issuperset(pair)) or _OF_UI.fullmatch(name) is not None
