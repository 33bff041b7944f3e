"""For any facts, there is a delivery to take, or a refusal that names every reason."""

from hypothesis import given
from hypothesis import strategies as st

from larder.config.models.cluster import Limits, Nodes
from larder.experiments.advice import Choices, advise
from larder.experiments.consumers.registry import CONSUMERS, consumer_configs
from larder.experiments.facts import Facts
from larder.experiments.rules import SOURCES
from tests.support.errors import larder_error

sizes = st.integers(0, 10**15)
TAKEN_BY_ITSELF = {
    name for configs in map(consumer_configs, CONSUMERS) for name in configs.DELIVERIES
} - {"data_layer"}
dollars = st.none() | st.floats(0, 1)
distances = st.sampled_from(["beside", "away", "unknown"])


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    consumer = draw(st.sampled_from(sorted(CONSUMERS)))
    deliveries = draw(
        st.lists(st.sampled_from(consumer_configs(consumer).DELIVERIES), min_size=1, unique=True)
    )
    size_bytes = draw(sizes)
    return Facts(
        consumer=consumer,
        deliveries=tuple(deliveries),
        bytes=size_bytes,
        objects=draw(st.integers(1, 10**9)) if size_bytes else 0,
        samples=draw(st.integers(0, 10**9)),
        omitted=draw(st.integers(0, 1)),
        unlisted=draw(st.booleans()),
        cache_bytes=draw(st.none() | sizes),
        release=draw(st.sampled_from([(0, 19, 9), (0, 19, 10), (0, 38)])),
        access=draw(st.sampled_from(["sequential", "random"])),
        epochs=draw(st.floats(0.01, 100)),
        trials=draw(st.integers(1, 1000)),
        training_seconds=draw(st.none() | st.floats(1, 10**7)),
        context_bytes=draw(st.none() | sizes),
        storage=draw(st.sampled_from(["aws", "gcp", "server", "file"])),
        from_source=draw(distances),
        to_nodes=draw(distances),
        source_usd_per_gb=draw(dollars),
        usd_per_gb=draw(dollars),
        usd_per_request=draw(st.floats(0, 1)),
        file_systems=draw(st.frozensets(st.sampled_from(["efs", "fsx", "claim"]))),
        prefixes=draw(st.integers(0, 40)),
        only=draw(st.sampled_from([frozenset(), frozenset({"pipe"}), frozenset({"file", "pipe"})])),
        sharded=draw(st.booleans()),
        nodes=Nodes(disk_bytes=draw(st.none() | sizes), count=draw(st.integers(1, 100))),
    )


def check_options(given: Facts, choices: Choices) -> None:
    options = choices.options
    assert sorted(option.delivery for option in options) == sorted(given.deliveries)
    assert [option.possible for option in options] == sorted(
        (option.possible for option in options), reverse=True
    )
    for option in options:
        assert option.fired
        assert option.startup_seconds >= 0
        assert option.moved_bytes >= 0
        assert option.disk_bytes >= 0
        assert (option.usd is None) == (given.usd_per_gb is None)
        for fired in (*option.fired, *choices.notes):
            assert fired.rule in SOURCES
            assert fired.sentence.endswith(".")


@given(facts())
def test_there_is_always_an_answer(given):
    choices = advise(given, Limits())
    check_options(given, choices)
    refusing = {
        option.delivery: [fired for fired in option.fired if fired.effect == "refuse"]
        for option in choices.options
    }
    for requested in ("auto", *given.deliveries):
        possible = [name for name, rules in refusing.items() if not rules]
        possible = [name for name in possible if name in (requested, *TAKEN_BY_ITSELF)]
        if possible and requested in ("auto", *possible):
            chosen = choices.choose(requested, where="storage")
            assert chosen.delivery == (possible[0] if requested == "auto" else requested)
            continue
        with larder_error("config.invalid_value") as caught:
            choices.choose(requested, where="storage")
        for name in [requested] if possible else refusing:
            for rule in refusing[name]:
                assert f"({rule.rule}, {rule.source})" in caught.value.message


@given(facts())
def test_fewer_trials_move_no_more_and_start_no_later(given):
    half = given._replace(trials=max(1, given.trials // 2))
    before = {option.delivery: option for option in advise(given, Limits()).options}
    for option in advise(half, Limits()).options:
        assert option.moved_bytes <= before[option.delivery].moved_bytes
        assert option.startup_seconds == before[option.delivery].startup_seconds
