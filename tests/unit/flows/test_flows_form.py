"""The forms of deployments: what the API takes, and what the command gets from it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.exceptions import ParameterTypeError
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import validate

from flows.clean import clean
from flows.compact import compact
from flows.copy import copy
from flows.prepare import prepare
from flows.prune import prune
from flows.refresh import refresh
from flows.runs.form import command_parameters, form_of, run_name
from flows.tag import tag
from flows.verify import verify
from larder.cli.copy_command import COPY
from larder.cli.prepare_command import COMPACT, PREPARE
from larder.cli.verify_command import VERIFY

FLOWS = (prepare, compact, verify, copy, refresh)
DATASETS = ["digits", "mine"]
PLACES = {"source": "from", "storage": "to"}


@pytest.fixture
def schemas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    for path in ("datasets/digits.yaml", "datasets/mine.yaml", "clusters/local.yaml"):
        (tmp_path / "configs" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "configs" / path).touch()
    monkeypatch.chdir(tmp_path)
    return {flow.name: parameter_schema(flow.fn).model_dump_for_openapi() for flow in FLOWS}


def test_datasets_and_clusters_are_drop_downs(schemas):
    for name in ("prepare", "compact", "verify"):
        properties = schemas[name]["properties"]
        assert (properties["dataset"]["enum"], properties["cluster"]["enum"]) == (
            DATASETS,
            ["local"],
        )
    assert schemas["refresh"]["properties"]["datasets"]["items"]["enum"] == DATASETS
    assert schemas["copy"]["properties"]["cluster"]["anyOf"][0]["enum"] == ["local"]


def test_every_field_has_a_title_and_a_sentence_and_advanced_is_the_last(schemas):
    for schema in schemas.values():
        fields = [*schema["properties"].values()]
        assert max(fields, key=lambda field: field["position"])["title"] == "advanced"
        for model in schema["definitions"].values():
            assert model["title"] == "Advanced"
            fields += model["properties"].values()
        for field in fields:
            assert field["title"]
            assert field["description"].endswith((".", "cluster."))


DIGITS = {"dataset": "digits"}


@pytest.mark.parametrize(
    ("flow", "form"),
    [
        ("prepare", {"dataset": "digit"}),
        ("prepare", {**DIGITS, "cluster": "elsewhere"}),
        ("prepare", {**DIGITS, "plan": "yes"}),
        ("prepare", {**DIGITS, "advanced": {"seting": []}}),
        ("prepare", {**DIGITS, "advanced": {"settings": "a=b"}}),
        ("prepare", {**DIGITS, "advanced": {"settings": ["mirror"]}}),
        ("prepare", {}),
        ("copy", {**PLACES, "verify": "md5"}),
        ("verify", {**DIGITS, "sample": 150.0}),
        ("verify", {**DIGITS, "sample": 0.0}),
    ],
)
def test_the_api_refuses_what_no_run_would_take(schemas, flow, form):
    with pytest.raises(Exception, match=r"is not|unexpected|required|match|one of|maximum|minimum"):
        validate(form, schemas[flow], raise_on_error=True)


def test_the_api_takes_settings_of_fields(schemas):
    settings = ["mirror=true", "cluster.copy.concurrency=1", "copy.verify=x"]
    form = {"dataset": "digits", "advanced": {"settings": settings}}
    validate(form, schemas["prepare"], raise_on_error=True)
    validate(PLACES, schemas["copy"], raise_on_error=True)


@pytest.mark.parametrize(
    ("given", "plan", "name"),
    [
        ("noisy-otter", False, "prepare digits for local"),
        ("kappa622-canis-majoris", True, "prepare digits for local (plan only)"),
        ("Before the holidays", True, "Before the holidays"),
        ("zeta-napinne", False, "prepare digits for local"),
        ("Rustic-otter", False, "prepare digits for local"),
        ("rerun-after-fix", False, "rerun-after-fix"),
        ("rerun-digits", False, "rerun-digits"),
        ("panda", False, "panda"),
        ("Digits", False, "Digits"),
    ],
)
def test_a_run_keeps_the_name_that_somebody_gave_it(given, plan, name, monkeypatch):
    run = SimpleNamespace(name=given, parameters={"dataset": "digits", "plan": plan})
    run.parameters["cluster"] = "local"
    monkeypatch.setattr("flows.runs.form.flow_run", run)
    assert run_name("prepare {dataset} for {cluster}")() == name


def test_plan_only_and_a_given_name_show_whatever_the_flow(monkeypatch):
    run = SimpleNamespace(name="noisy-otter", parameters={"dataset": "digits", "plan": True})
    monkeypatch.setattr("flows.runs.form.flow_run", run)
    assert clean.flow_run_name() == "clean digits (plan only)"
    monkeypatch.setenv("LARDER_TEAM", "vision")
    run.parameters["storage"] = "s3://bucket/"
    assert clean.flow_run_name() == "clean digits at s3://bucket/ (vision, plan only)"
    run.parameters = {"dataset": "localities", "plan": False, "cluster": "local"}
    assert clean.flow_run_name() == "clean localities at local (vision)"
    run.name = "Back to v1"
    assert tag.flow_run_name() == "Back to v1"


def test_where_no_config_folder_is_every_name_is_accepted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    schema = parameter_schema(prepare.fn).model_dump_for_openapi()
    assert "enum" not in schema["properties"]["dataset"]


def test_other_names_win_over_the_drop_downs():
    advanced = {"other_dataset": "new", "other_cluster": "", "settings": ["a=b"]}
    form = prepare.validate_parameters({"dataset": "digits", "advanced": advanced})
    assert command_parameters(form) == {
        "dataset": "new",
        "cluster": "local",
        "plan": False,
        "settings": ["a=b"],
        "config_dir": "configs",
    }


def test_other_datasets_of_a_refresh_take_the_place_of_those_in_the_form():
    advanced = {"other_datasets": ["new"], "other_cluster": "big"}
    form = refresh.validate_parameters({"datasets": ["digits"], "advanced": advanced})
    run = command_parameters(form)
    assert (run["datasets"], run["cluster"]) == (["new"], "big")
    form = refresh.validate_parameters({"datasets": ["digits"]})
    assert command_parameters(form)["datasets"] == ["digits"]


@pytest.mark.parametrize(
    ("flow", "command", "arguments"),
    [
        (
            prepare,
            PREPARE,
            "--dataset digits --cluster local --set mirror=true --set labels=null --output o",
        ),
        (prepare, PREPARE, "--dataset digits"),
        (compact, COMPACT, "--dataset digits --config-dir there"),
        (verify, VERIFY, "--dataset digits --version v1 --sample 5 --seed 7"),
        (copy, COPY, "from to --include **/*.jpg --exclude x --cluster local --verify size"),
        (copy, COPY, "from to --verify size --set source.region=x"),
    ],
)
def test_a_form_says_what_the_command_line_says_and_can_be_sent_again(
    flow, command, arguments, schemas
):
    namespace = vars(command.parser("it").parse_args(arguments.split()))
    parameters = {k: v for k, v in namespace.items() if k not in ("plan", "json", "quiet")}
    form = form_of(parameters)
    validate(form, schemas[flow.name], raise_on_error=True)
    run = command_parameters(flow.validate_parameters(form))
    run.pop("plan", None)
    assert run == {name: value for name, value in parameters.items() if value is not None}


@pytest.mark.parametrize(
    ("flow", "given", "name", "values"),
    [
        (verify, {"dataset": "digits"}, "sample", [True, "5", "half"]),
        (verify, {"dataset": "digits"}, "seed", [True, 1.0, "7"]),
        (verify, {"dataset": "digits"}, "repair", [1, "yes"]),
        (prune, PLACES, "max_delete", [True, 10.0, "10"]),
        (clean, DIGITS, "keep", [True, 1.0, "1", 0]),
        (copy, PLACES, "include", [None, "*.jpg"]),
        (refresh, {}, "datasets", [None, "digits"]),
    ],
)
def test_nothing_is_taken_for_something_else(flow, given, name, values):
    for value in values:
        with pytest.raises(ParameterTypeError, match=name):
            flow.validate_parameters({**given, name: value})
