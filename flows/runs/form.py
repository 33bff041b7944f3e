"""The form of a command's flow: its fields are the arguments of the command.

The options of drop-downs are frozen when the flow is deployed. The flow itself accepts every name:
a name that a drop-down did not have goes below "advanced", and the command line has no form.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import coolname.data  # Prefect's
from prefect.runtime import flow_run
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StrictBool,
    StrictFloat,
    StrictInt,
    create_model,
)
from pydantic_core import CoreSchema

from larder.cli.command import Command
from larder.config.load import names
from tasks.artifacts import team

CONFIGS = "configs"
"""The folder whose files the drop-downs offer."""

_ADVANCED = "advanced"
_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD
_TITLES = {"settings": "Overrides", "config_dir": "Config folder", "output": "Output folder"}
"""The titles of the arguments that are fields below "advanced"."""
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
_TYPES: dict[str, Any] = {
    "dataset": DatasetName,
    "datasets": list[DatasetName],
    "cluster": Annotated[str, _NamesIn("clusters")],
    "settings": list[Annotated[str, Field(json_schema_extra={"pattern": "^[^=]+="})]],
    "keep": Annotated[StrictInt, Field(ge=1)],
    "sample": Annotated[StrictFloat, Field(gt=0, le=100)],
    "verify": Literal["digest", "size"],
}
"""The types of arguments for which a form accepts only some of the values that a flag accepts."""


def set_form(function: Callable[..., Any], command: Command) -> None:
    """Give a function the signature and docstring from which Prefect makes a command's form."""
    arguments = command.parser().parameters()
    main = {name: each for name, each in arguments.items() if name not in _TITLES}
    model = _advanced(arguments)
    advanced = inspect.Parameter(_ADVANCED, _KIND, default=model(), annotation=model)
    lines = "".join(f"    {name}: {_sentence(argument)}\n" for name, argument in main.items())
    described = f"Args:\n{lines}    {_ADVANCED}: Rarely needed parameters."
    function.__name__ = function.__qualname__ = command.name
    function.__module__ = f"flows.{command.name}"  # from which Prefect's serve and deploy load it
    function.__doc__ = f"{command.description}\n\n{described}"
    signature = inspect.Signature([*map(_field, main.values()), advanced])
    function.__signature__ = signature  # type: ignore[attr-defined]


def _field(argument: argparse.Action) -> inspect.Parameter:
    type_ = _type(argument)
    if argument.required:
        return inspect.Parameter(argument.dest, _KIND, annotation=type_)
    annotation = type_ | None if argument.default is None else type_
    return inspect.Parameter(argument.dest, _KIND, default=argument.default, annotation=annotation)


def _type(argument: argparse.Action) -> Any:
    """Return the type of a field; strict, so that 1 is no toggle, and "7" no number."""
    if argument.dest in _TYPES:
        return _TYPES[argument.dest]
    if argument.nargs == 0:
        return StrictBool
    if isinstance(argument.default, list):
        return list[str]
    strict: dict[Any, Any] = {None: str, int: StrictInt, float: StrictFloat}
    return strict[argument.type]


def _advanced(arguments: Mapping[str, argparse.Action]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for argument in filter(None, map(arguments.get, _TITLES)):
        default = "" if argument.default is None else argument.default
        title, sentence = _TITLES[argument.dest], _sentence(argument)
        fields[argument.dest] = _type(argument), Field(default, title=title, description=sentence)
    for argument in filter(None, map(arguments.get, _NEWER)):
        several = isinstance(argument.default, list)
        title = f"Other {argument.dest}"
        sentence = f"Used instead of {argument.dest}, for files newer than its options."
        field = Field([] if several else "", title=title, description=sentence)
        fields[f"other_{argument.dest}"] = list[str] if several else str, field
    config = ConfigDict(extra="forbid", frozen=True, strict=True)
    return create_model("Advanced", __config__=config, **fields)


def _sentence(argument: argparse.Action) -> str:
    phrase = argument.help or ""
    return f"{phrase[:1].upper()}{phrase[1:]}."


def command_parameters(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the command for a form, without fields that the form leaves open."""
    main = {name: value for name, value in form.items() if name != _ADVANCED and value is not None}
    advanced = form.get(_ADVANCED, {})
    if isinstance(advanced, BaseModel):
        advanced = advanced.model_dump()
    filled = {name: value for name, value in advanced.items() if value not in (None, "")}
    others = {name: filled.pop(f"other_{name}", None) for name in _NEWER}
    return {**main, **filled, **{name: other for name, other in others.items() if other}}


def form_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    form = {name: value for name, value in parameters.items() if name not in _TITLES}
    rare = {name: value for name, value in parameters.items() if name in _TITLES}
    return {**form, _ADVANCED: {name: value for name, value in rare.items() if value is not None}}


def run_name(template: str) -> Callable[[], str]:
    """Make a function that names the runs of a flow: ``prepare imagenet for aws-us-west-2``.

    A name that a person has given is kept; only its words tell it from one that Prefect has made
    up.
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
