from benchmarks import orchestration


def test_a_benchmark_of_digits_prints_nothing_before_its_document(tmp_path, monkeypatch, capfd):
    """The line about the written digits made the output of --json unreadable."""
    monkeypatch.setattr(orchestration, "digits", lambda lab, runs: [])
    assert orchestration.run(orchestration.Lab(tmp_path, 0), 1, 20, ["digits"]) == []
    assert len(list(tmp_path.glob("data/source/digits/*/*.png"))) == 1_797
    assert capfd.readouterr().out == ""
