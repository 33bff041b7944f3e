"""A clean that executes several tombstones at once."""

import pytest
from catalog_lab import cleaned, grown
from pipeline_lab import directory_lab, images

from larder.manifest.sealed import seal
from larder.versions.leases import Tombstone


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_segment_goes_with_the_version_that_another_tombstone_names(tmp_path, names):
    lab = directory_lab(tmp_path, images("ab", 2), cache=None, growth={"mode": "rebuild"})
    first, second = grown(lab, 2)
    (segment,) = {each.id for each in lab.check()[first].version.segments}
    units = (f"versions/{first}", f"segments/{segment}")
    (lab.folder / "tombstones").mkdir()
    for name, unit in zip(names, units, strict=True):
        (lab.folder / f"tombstones/{name}.json").write_bytes(seal(Tombstone((unit,))))
    assert cleaned(lab)["status"] == "cleaned"
    assert lab.check().keys() == {second}
    assert not list((lab.folder / units[1]).rglob("*.*"))
    assert cleaned(lab)["status"] == "current"
