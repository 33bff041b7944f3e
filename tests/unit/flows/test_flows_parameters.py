"""The form of a flow: its fields are the arguments of the command of the same name."""

from importlib import import_module
from itertools import chain
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from prefect import Flow
from prefect.deployments.runner import RunnerDeployment
from prefect.utilities.callables import get_call_parameters, parameter_schema

from flows.runs import flow_run
from larder.cli.command import Command
from larder.cli.main import COMMANDS, command_of

FLOWS = {name: command for name in COMMANDS if isinstance(command := command_of(name), Command)}


def flow_named(name: str) -> Flow[..., Any]:
    flow: Flow[..., Any] = getattr(import_module(f"flows.{name}"), name)
    return flow


@pytest.mark.parametrize("name", FLOWS)
def test_a_form_has_the_arguments_of_the_command(name):
    arguments = FLOWS[name].parser().parameters()
    schema = parameter_schema(flow_named(name).fn)
    advanced = schema.definitions["Advanced"]["properties"]
    newer = {field for field in advanced if field.startswith("other_")}
    main = {field: each for field, each in schema.properties.items() if field != "advanced"}
    assert {*main, *advanced} - newer == arguments.keys()
    assert newer == {
        f"other_{field}" for field in ("dataset", "datasets", "cluster") if field in main
    }
    for field, each in (main | advanced).items():
        if field not in newer:
            assert each["description"].lower() == f"{arguments[field].help}.".lower()
            assert each.get("default") in (arguments[field].default, "")
    required = {field for field, each in arguments.items() if each.required}
    assert set(schema.required or ()) == required


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_is_called_and_deployed_like_any_other_function(name):
    flow = flow_named(name)
    required = flow.parameters.required or []
    parameters = get_call_parameters(flow.fn, tuple(required), {})
    assert [parameters[field] for field in required] == required
    assert RunnerDeployment.from_flow(flow, "mine").entrypoint == f"flows/{name}.py:{name}"


@pytest.mark.parametrize("name", FLOWS)
def test_fields_that_a_form_leaves_open_have_the_defaults_of_the_command(name, monkeypatch):
    command, flow, operation = FLOWS[name], flow_named(name), Mock()
    arguments = command.parser().parameters()
    filled = {field: 1 if field == "keep" else "x" for field in flow.parameters.required or ()}
    line = [[*arguments[field].option_strings, str(value)] for field, value in filled.items()]
    parameters = vars(command.parser().parse_args([*chain.from_iterable(line)]))
    form = flow.validate_parameters(get_call_parameters(flow.fn, (), filled))
    monkeypatch.setattr(flow_run, "flow_run", SimpleNamespace(parameters=form))
    monkeypatch.setattr(flow_run, "check_runner", Mock())
    flow_run._begun(command._replace(operation=operation))
    operation.assert_called_once_with(
        **{field: value for field, value in parameters.items() if field in {*arguments} - {"plan"}}
    )
