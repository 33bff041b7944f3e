import gzip
import hashlib
from pathlib import Path

from larder.demo import digits
from larder.demo.digits import DIGITS, main, write_digits

# In the order of the classes, as UCI states them.
COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_digits_are_those_of_uci(tmp_path):
    source = tmp_path / "source"
    assert write_digits(source) == DIGITS
    files = sorted(source.rglob("*"), key=lambda path: path.name)
    pngs = [path for path in files if path.is_file()]
    assert [len(list((source / str(n)).iterdir())) for n in range(10)] == COUNTS
    assert list(tmp_path.iterdir()) == [source]
    # The same on every machine, whatever is installed there.
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in pngs)).hexdigest()
    assert digest == "82be77aa2939271dc94b902b92ae6b4a97fb35c81a82d06c5b7da467be0b10b3"


def test_digits_have_their_citation():
    packed = Path(digits.__file__).with_name("digits.txt.gz").read_bytes()
    assert len(packed) < 60_000
    head = gzip.decompress(packed)[:400].decode()
    assert "E. Alpaydin and C. Kaynak" in head
    assert "https://creativecommons.org/licenses/by/4.0/" in head


def test_digits_are_written_once_and_completed_after_a_kill(tmp_path):
    source = tmp_path / "source"
    write_digits(source)
    assert write_digits(source) == 0
    whole = (source / "0/digit-0000.png").read_bytes()
    kept = (source / "1/digit-0001.png").stat().st_mtime_ns
    (source / "0/digit-0000.png").write_bytes(whole[:20])
    (source / "9/digit-0009.png").unlink()
    assert write_digits(source) == 2
    assert (source / "0/digit-0000.png").read_bytes() == whole
    assert (source / "1/digit-0001.png").stat().st_mtime_ns == kept


def test_a_directory_that_cannot_be_written_ends_with_status_2(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main([str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith("error[config.path]: ")
