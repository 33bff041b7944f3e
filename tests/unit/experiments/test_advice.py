import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from larder.config.models.cluster import Consumer, Downloads, Limits, Nodes
from larder.config.models.dataset import Experiment
from larder.errors import ConfigError
from larder.experiments.advice import advise
from larder.experiments.consumers.registry import CONSUMERS, consumer_configs
from larder.experiments.facts import Facts
from larder.experiments.rules import SOURCES
from larder.units import format_bytes, format_seconds, parse_bytes

GOLDEN = Path(__file__).parents[2] / "golden" / "advice.md"
FIELDS = {
    "access": ("access", str),
    "cache": ("cache_bytes", parse_bytes),
    "context": ("context_bytes", parse_bytes),
    "epochs": ("epochs", float),
    "omitted": ("omitted", int),
    "only": ("only", lambda value: frozenset(value.split(","))),
    "place": ("to_nodes", str),
    "prefixes": ("prefixes", int),
    "samples": ("samples", int),
    "slots": ("slots", int),
    "release": ("release", lambda value: tuple(map(int, value.split(".")))),
    "source": ("from_source", str),
    "source_usd": ("source_usd_per_gb", float),
    "storage": ("storage", str),
    "target": ("target_bytes", parse_bytes),
    "training": ("training_seconds", lambda value: 3600 * float(value.removesuffix("h"))),
    "trials": ("trials", int),
    "usd": ("usd_per_gb", float),
}
COLUMNS = ("facts", "first", "rules", "start-up", "moved", "USD", "disk", "reason")
NODES = {"disk": ("disk_bytes", parse_bytes), "nodes": ("count", int), "ranks": ("ranks", int)}


def facts_of(text: str) -> Facts:
    """Facts as the golden table writes them: ``determined 2GB/14 disk=500GB claim``."""
    consumer, size, *words = text.split()
    size_bytes, objects = size.split("/")
    given: dict[str, Any] = {}
    nodes: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name in ("unlisted", "sharded", "own_image", "old_image"):
            given[name] = True
        elif name == "kept":
            nodes["downloads"] = Downloads(host_path="/scratch", container_path="/larder")
        elif not value:
            given["file_systems"] = frozenset({name})
        else:
            into, fields = (nodes, NODES) if name in NODES else (given, FIELDS)
            into[fields[name][0]] = fields[name][1](value)
    if given.get("to_nodes") == "unknown":
        given["usd_per_gb"] = None
    return Facts(
        consumer,
        consumer_configs(consumer).DELIVERIES,
        parse_bytes(size_bytes),
        int(objects),
        nodes=Nodes(**nodes),
        **given,
    )


def answer(facts: Facts) -> tuple[str, ...]:
    """The first delivery, its rules, what it takes, and why; or the rules that refuse."""
    choices = advise(facts, Limits())
    try:
        first = choices.choose("auto", where="")
    except ConfigError:
        asked = [
            each
            for each in choices.options
            if each.delivery in (facts.only or consumer_configs(facts.consumer).DELIVERIES)
        ]
        refusing = [fired for each in asked for fired in each.fired if fired.effect == "refuse"]
        rules, why = " ".join(dict.fromkeys(each.rule for each in refusing)), refusing[0].sentence
        return "refused", rules, "", "", "", "", why
    return (
        first.delivery,
        " ".join(fired.rule for fired in (*first.fired, *choices.notes)),
        format_seconds(first.startup_seconds),
        format_bytes(first.moved_bytes),
        "unknown" if first.usd is None else f"{first.usd:,.2f}",
        format_bytes(first.disk_bytes),
        first.deciding.sentence,
    )


def rows() -> Iterator[str]:
    for line in GOLDEN.read_text().splitlines():
        if line.startswith("| ") and not line.startswith("| facts"):
            yield line.split("|")[1].strip()


def test_the_rules_choose_as_in_the_table():
    text = GOLDEN.read_text()
    head = text[: text.index("| facts")] + "| " + " | ".join(COLUMNS) + " |"
    table = ("| " + " | ".join((facts, *answer(facts_of(facts)))) + " |" for facts in rows())
    given = "\n".join([head, "|---" * len(COLUMNS) + "|", *table]) + "\n"
    if os.environ.get("LARDER_WRITE_GOLDEN"):
        GOLDEN.write_text(given)
    assert given.splitlines() == GOLDEN.read_text().splitlines()
    assert len(list(rows())) >= 60


def test_every_rule_is_in_the_table():
    fired = {
        fired.rule
        for facts in rows()
        for choices in [advise(facts_of(facts), Limits())]
        for fired in (
            *choices.notes,
            *(each for option in choices.options for each in option.fired),
        )
    }
    assert fired == set(SOURCES)


def test_a_source_that_may_be_on_a_file_system_is_said_to_need_no_copy():
    facts = facts_of("sagemaker 5GB/40")
    for source, expected in (("file", True), ("aws", False)):
        options = advise(facts._replace(source=source), Limits()).options
        efs = next(each for each in options if each.delivery == "efs")
        assert ("on Amazon EFS already" in efs.deciding.sentence) == expected


def test_nodes_share_samples_that_are_read_at_random():
    facts = facts_of("sagemaker 150GB/1000 access=random nodes=10")
    for sharded in (True, False):
        described = facts._replace(samples=10**6, usd_per_request=1e-6, sharded=sharded)
        options = {each.delivery: each for each in advise(described, Limits()).options}
        assert options["fast_file"].usd == pytest.approx(1)


def test_a_channel_needs_a_shard_for_each_node():
    facts = facts_of("sagemaker 5GB/6 nodes=3 sharded")._replace(split_objects=3, prefix_objects=2)
    possible = {each.delivery for each in advise(facts, Limits()).options if each.possible}
    assert possible == {"file", "pipe"}
    facts = facts._replace(split_objects=2)
    assert not any(each.possible for each in advise(facts, Limits()).options)


def test_the_cluster_file_names_every_consumer():
    assert set(get_args(Consumer.model_fields["kind"].annotation)) == CONSUMERS.keys()


@pytest.mark.parametrize("kind", CONSUMERS)
def test_the_dataset_file_names_every_delivery(kind):
    deliveries = consumer_configs(kind).DELIVERIES
    assert deliveries
    assert set(deliveries) < set(get_args(Experiment.model_fields["delivery"].annotation))


def test_the_data_layer_is_not_taken_by_itself_but_named_as_a_way_out():
    choices = advise(facts_of("determined 2TB/13000 disk=500GB release=0.19.9"), Limits())
    with pytest.raises(ConfigError) as caught:
        choices.choose("auto", where="")
    assert "name data_layer" in caught.value.hint
    assert choices.choose("data_layer", where="").delivery == "data_layer"
