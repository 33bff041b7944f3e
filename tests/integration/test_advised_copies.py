"""What advice tells training code to call copies every version, also one that omits samples."""

import re

from pipeline_lab import directory_lab

import larder
from larder.config.models.cluster import Limits
from larder.experiments.advice import advise
from larder.experiments.consumers.registry import consumer_configs
from larder.experiments.facts import Facts


def test_a_version_that_omits_samples_is_copied_as_advised(tmp_path):
    lab = directory_lab(tmp_path, cache=None, growth={"removals": "omit"})
    lab.prepare()
    lab.remove("a/01.png")
    lab.prepare()
    facts = Facts("determined", consumer_configs("determined").DELIVERIES, 10**9, 10, omitted=1)
    bucket = advise(facts, Limits()).choose("bucket", where="")
    (call,) = re.findall(r"larder\.open\(\)\.(\w+)\(DIRECTORY\)", bucket.deciding.sentence)
    data = larder.open(lab.root)
    copy = larder.open(getattr(data, call)(tmp_path / "node"))
    found = {split: sorted(key for key, *_ in copy.samples(split)) for split in copy.splits}
    assert found == {split: sorted(key for key, *_ in data.samples(split)) for split in data.splits}
    assert sum(map(len, found.values())) == 11
