"""Whatever the keys, a report of them lists the same objects as the store."""

import csv
import gzip
import io
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from larder.config.models.locations import Report
from larder.source.reports import open_report
from larder.store import open_store
from tests.support.inventory import write_report

KEYS = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12
)
OBJECTS = st.dictionaries(
    KEYS, st.tuples(st.integers(0, 2**63 - 1), st.sampled_from(["", "e", "0a-3"])), max_size=8
)
PREFIXES = st.sampled_from(["", "p/", "a b+%2F/ü/", "p"])

Objects = dict[str, tuple[int, str]]


def table(objects: Objects, prefix: str) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, quoting=csv.QUOTE_ALL)
    rows.writerow(["etag", "key", "size"])
    rows.writerows([etag, prefix + key, size] for key, (size, etag) in objects.items())
    return gzip.compress(text.getvalue().encode())


def report(kind: str, folder: Path, objects: Objects, prefix: str) -> str:
    """The path of a report, or of a table of the objects."""
    if kind == "table":
        (folder / "list.csv.gz").write_bytes(table(objects, prefix))
        return str(folder / "list.csv.gz")
    rows = [(prefix + key, True, False, size, etag, "") for key, (size, etag) in objects.items()]
    return f"{folder}/{write_report(open_store(str(folder)), '', kind, [rows])}"


@given(st.sampled_from(["CSV", "Parquet", "table"]), OBJECTS, PREFIXES)
def test_a_report_lists_every_object_once_and_in_order(kind, objects, prefix):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = report(kind, folder, {**objects, "last": (1, "")}, prefix)
        whole = prefix if prefix.endswith("/") or not prefix else f"{prefix}/"
        source = f"s3://source/{prefix}"
        inside = {
            (prefix + key)[len(whole) :]: facts
            for key, facts in {**objects, "last": (1, "")}.items()
            if (prefix + key).startswith(whole) and prefix + key != whole
        }
        if not inside:
            return
        found = [
            info
            for page in open_report(Report(url=url), source, open_store).pages(folder)
            for info in page
        ]
        assert {info.key: (info.size_bytes, info.etag) for info in found} == inside
        assert [info.key for info in found] == sorted(inside, key=str.encode)
