"""The form of a flow: its fields are the arguments of the command of the same name."""

from importlib import import_module
from pkgutil import resolve_name

import pytest
from prefect.utilities.callables import parameter_schema

from larder.cli.command import Command
from larder.cli.main import COMMANDS

FLOWS = {
    name: command
    for name, entry in COMMANDS.items()
    if isinstance(command := resolve_name(entry.command), Command)
}


@pytest.mark.parametrize("name", FLOWS)
def test_a_form_has_the_arguments_of_the_command(name):
    arguments = FLOWS[name].parser().parameters()
    schema = parameter_schema(getattr(import_module(f"flows.{name}"), name).fn)
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
