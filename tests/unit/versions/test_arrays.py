"""Archives of arrays: the same bytes everywhere, which numpy and zipfile read."""

import zipfile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, integer_dtypes

from larder.manifest.digest import sha256_hex
from larder.versions.arrays import (
    HEADER_BYTES,
    ArrayFile,
    read_array,
    read_directory,
    write_archive,
)

ONE_DIMENSION = array_shapes(min_dims=1, max_dims=1, min_side=0, max_side=40)
ARRAYS = st.dictionaries(
    st.text("abcxyz", min_size=1, max_size=70),
    st.lists(arrays(integer_dtypes(endianness="<"), ONE_DIMENSION), min_size=1, max_size=1),
    min_size=1,
    max_size=4,
)


def archived(contents: dict[str, list[np.ndarray]]) -> bytes:
    with TemporaryDirectory() as folder:
        files = {}
        for name, pieces in contents.items():
            with ArrayFile(Path(folder, name), pieces[0].dtype) as file:
                for piece in pieces:
                    file.append(piece)
                files[name] = file.finish()
        write_archive(Path(folder, "archive"), files)
        assert [path.name for path in Path(folder).iterdir()] == ["archive"]
        return Path(folder, "archive").read_bytes()


@given(contents=ARRAYS, cut=st.integers(0, 10**6))
def test_numpy_and_ranges_of_the_file_give_what_was_written(contents, cut):
    data = archived(contents)
    assert zipfile.ZipFile(BytesIO(data)).testzip() is None
    loaded = np.load(BytesIO(data), allow_pickle=False)
    directory_bytes = 120 + 260 * len(contents)
    tail = data[min(cut, max(0, len(data) - directory_bytes)) :]
    members = read_directory(tail, len(data))
    assert list(members) == list(loaded) == list(contents)
    for name, (array,) in contents.items():
        offset, size_bytes, _ = members[name]
        read = read_array(data[offset : offset + size_bytes])
        assert offset % 64 == 0
        assert read.tobytes() == data[offset + HEADER_BYTES : offset + size_bytes]
        for each in (read, loaded[name]):
            assert (each.dtype, each.tolist()) == (array.dtype, array.tolist())


def test_the_bytes_are_the_same_in_every_python():
    contents = {
        "rows": [np.arange(100, dtype="<i8"), np.ones(3, "<i8")],
        "exts": [np.array([b"x"])],
    }
    digest = "a8297e4f489136184af89959045113b2da1f6a25339f2f18066cf0a687ad2df8"
    assert sha256_hex(archived(contents)) == digest


@pytest.mark.parametrize("data", [b"", b"PK", bytes(1_000)])
def test_what_is_no_archive_is_refused(data):
    with pytest.raises(ValueError, match="not an archive"):
        read_directory(data, len(data))


def test_a_member_that_is_compressed_or_elsewhere_is_refused():
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rows.npy", bytes(1_000))
    with pytest.raises(ValueError, match="not stored"):
        read_directory(file.getvalue(), len(file.getvalue()))
    data = archived({"rows": [np.zeros(1)]})
    with pytest.raises(ValueError, match="not stored"):
        read_directory(data[200:], len(data) - 250)
