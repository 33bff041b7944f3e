import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from larder.config.models.cluster import Consumer, Downloads, Limits, Nodes
from larder.config.models.dataset import Experiment
from larder.errors import ConfigError
from larder.experiments.advice import Option, advise
from larder.experiments.consumers.registry import CONSUMERS
from larder.experiments.rules import SOURCES, Facts
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
        if name in ("unlisted", "sharded", "own_image"):
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
        CONSUMERS[consumer].DELIVERIES,
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
        refusing = [
            fired for each in choices.options for fired in each.fired if fired.effect == "refuse"
        ]
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
    """The facts of each row."""
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


def option_of(delivery: str, text: str) -> Option:
    options = advise(facts_of(text), Limits()).options
    return next(each for each in options if each.delivery == delivery)


def test_an_image_of_the_users_own_is_not_refused_but_has_to_be_asked_for():
    text = "determined 2GB/14 cache=2GB release=0.25.1"
    for delivery in ("bucket", "stream", "cache"):
        assert not option_of(delivery, text).possible
        option = option_of(delivery, f"{text} own_image")
        assert any("the template's own" in fired.sentence for fired in option.fired)
        assert advise(facts_of(f"{text} own_image"), Limits()).choose(delivery, where="") == option
    download = option_of("download", text)
    assert (download.moved_bytes, download.disk_bytes) == (2e9, 2e9)  # its hook takes no cache


@pytest.mark.parametrize(
    ("words", "differs"),
    [("slots=8", True), ("slots=8 ranks=4 nodes=2", False), ("slots=0", False)],
)
def test_ranks_are_compared_with_the_slots_of_the_template(words, differs):
    sentences = [each.sentence for each in option_of("bucket", f"determined 2GB/14 {words}").fired]
    assert any("The template has 8 slots" in each for each in sentences) == differs


def test_a_cache_that_nodes_keep_moves_once_for_each_node():
    text = "determined 10GB/70 cache=10GB trials=8 nodes=2"
    assert option_of("cache", text).moved_bytes == 16 * 10**10
    assert option_of("cache", f"{text} kept").moved_bytes == 2 * 10**10


@pytest.mark.parametrize("delivery", ["cache", "bucket", "download"])
def test_what_does_not_fit_the_disk_of_a_node_is_refused(delivery):
    text = "determined 2TB/13000 cache=2TB"
    option = option_of(delivery, f"{text} disk=500GB")
    assert not option.possible
    assert "disk" in option.deciding.sentence
    assert option_of(delivery, text).possible
    assert option_of(delivery, f"{text} disk=5TB").possible


def test_each_rank_downloads_for_itself_in_a_trial_and_an_init_container_once():
    """A stream of Kubernetes moves what is read, and needs no disk."""
    text = "10GB/70 disk=50GB ranks=8 nodes=2 epochs=3"
    bucket = option_of("bucket", f"determined {text}")
    assert (bucket.possible, bucket.moved_bytes, bucket.disk_bytes) == (False, 16e10, 8e10)
    download = option_of("download", f"kubernetes {text}")
    assert (download.possible, download.moved_bytes, download.disk_bytes) == (True, 2e10, 1e10)
    stream = option_of("stream", f"kubernetes {text}")
    assert (stream.moved_bytes, stream.disk_bytes) == (6e10, 0)


@pytest.mark.parametrize(
    ("delivery", "text", "reason"),
    [
        ("file", "sagemaker 40GB/270 training=0.0167h", "too long beside training"),
        ("file", "sagemaker 40GB/270 epochs=0.05 training=9h", "before it has read everything"),
        ("file", "sagemaker 70GB/500 disk=1TB", "experiment.training_seconds"),
        ("file", "sagemaker 70GB/500 disk=1TB training=1h", "too long beside training"),
        ("file", "sagemaker 300GB/500 disk=1TB training=900h", "large"),
        ("download", "determined 1GB/10 training=900h", "nodes.disk_bytes"),
        ("download", "determined 90MB/1", "experiment.training_seconds"),
        ("bind_mount", "kubernetes 1GB/10 storage=file claim", "volume"),
    ],
)
def test_a_download_that_is_not_preferred_says_why(delivery, text, reason):
    assert reason in option_of(delivery, text).deciding.sentence


@pytest.mark.parametrize(
    ("delivery", "text", "sentence"),
    [
        ("bind_mount", "determined 2GB/14 storage=file", "every agent"),
        ("bind_mount", "kubernetes 2GB/14 storage=file", "every node"),
        ("efs", "sagemaker 2GB/14 storage=file efs", "throughput mode"),
        ("fsx", "sagemaker 2GB/14 storage=file fsx", "single Availability Zone"),
        ("fsx", "sagemaker 2GB/14 storage=file fsx", "first epoch"),
        ("fast_file", "sagemaker 300GB/2000 access=random", "python -m timeit"),
    ],
)
def test_what_to_look_after_is_said_where_it_applies(delivery, text, sentence):
    assert any(sentence in fired.sentence for fired in option_of(delivery, text).fired)
    elsewhere = option_of(delivery, f"{text.split()[0]} 300GB/2000")
    assert not any(sentence in fired.sentence for fired in elsewhere.fired)


def test_a_source_that_may_be_on_a_file_system_is_said_to_need_no_copy():
    facts = facts_of("sagemaker 5GB/40")
    for source, expected in (("file", True), ("aws", False)):
        options = advise(replace(facts, source=source), Limits()).options
        efs = next(each for each in options if each.delivery == "efs")
        assert ("on Amazon EFS already" in efs.deciding.sentence) == expected


def test_short_trials_of_sagemaker_stream_what_they_read():
    facts = facts_of("sagemaker 40GB/270 epochs=0.1 trials=64")
    first = advise(facts, Limits()).choose("auto", where="")
    assert (first.delivery, round(first.moved_bytes / 10**9)) == ("fast_file", 256)


def test_inline_is_read_once_for_all_trials():
    option = option_of("inline", "determined 50MB/1 context=5kB place=away usd=0.1 trials=1000")
    assert option.usd == pytest.approx(0.005)
    assert option.moved_bytes == 50 * 10**9


def test_nodes_share_samples_that_are_read_at_random():
    facts = facts_of("sagemaker 150GB/1000 access=random nodes=10")
    for sharded, requests in ((True, 10**6), (False, 10**7)):
        described = replace(facts, samples=10**6, usd_per_request=1e-6, sharded=sharded)
        options = {each.delivery: each for each in advise(described, Limits()).options}
        assert options["fast_file"].usd == pytest.approx(requests / 10**6)


def test_a_channel_needs_a_shard_for_each_node():
    facts = replace(facts_of("sagemaker 5GB/6 nodes=3 sharded"), split_objects=3, prefix_objects=2)
    possible = {each.delivery for each in advise(facts, Limits()).options if each.possible}
    assert possible == {"file", "pipe"}
    facts = replace(facts, split_objects=2)
    assert not any(each.possible for each in advise(facts, Limits()).options)


def test_the_cluster_file_names_every_consumer():
    assert set(get_args(Consumer.model_fields["kind"].annotation)) == CONSUMERS.keys()


@pytest.mark.parametrize("kind", CONSUMERS)
def test_the_dataset_file_names_every_delivery(kind):
    deliveries = CONSUMERS[kind].DELIVERIES
    assert deliveries
    assert set(deliveries) < set(get_args(Experiment.model_fields["delivery"].annotation))
