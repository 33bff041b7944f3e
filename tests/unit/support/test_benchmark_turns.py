"""Contenders of a benchmark take turns; one that fails is named."""

import sys

import pytest

from benchmarks.copying.programs import Place, list_with
from benchmarks.harness import alternate, run_command
from tests.support.servers import S3Server


@pytest.mark.parametrize(
    ("rounds", "turns", "median"),
    [(1, "ours peer unable", 1.0), (3, "ours peer unable" + 3 * " ours peer", 9.0)],
)
def test_medians_are_of_turns_after_a_round_that_does_not_count(rounds, turns, median):
    taken = []

    def turn(name):
        taken.append(name)
        return {"seconds": float(taken.count(name) ** 2)}

    contenders = {"ours": lambda: turn("ours"), "peer": lambda: turn("peer")}
    contenders["unable"] = lambda: taken.append("unable")
    before = []
    found = alternate(contenders, rounds, before=lambda: before.append(len(taken)))
    assert taken == turns.split()
    assert before == [*range(len(taken))]
    assert found == {"ours": {"seconds": median}, "peer": {"seconds": median}, "unable": {}}


def test_an_error_names_the_command_and_what_it_wrote():
    script = "import sys; sys.exit('no such bucket')"
    with pytest.raises(RuntimeError, match=r"python\S* -c .*no such bucket"):
        run_command([sys.executable, "-c", script])


@pytest.mark.parametrize("name", ["s5cmd", "rclone"])
def test_a_peer_that_cannot_list_is_left_out(name, tmp_path, capsys):
    program = tmp_path / name
    program.write_text("#!/bin/sh\necho no such bucket >&2\nexit 1\n")
    program.chmod(0o755)
    source = Place("bucket", S3Server("none", "http://127.0.0.1:1"), tmp_path)
    assert list_with(name, tmp_path, source) is None
    assert "no such bucket" in capsys.readouterr().err
