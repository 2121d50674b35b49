"""Readers of untrusted files: right on valid ones, one clear refusal on all others."""

import gzip
import io
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from undrift.config import UndriftError
from undrift.data.files import formats
from undrift.data.files.formats import (
    idx,
    read_bytes,
    read_idx,
    read_rows,
    tar_files,
    zip_member,
)

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)


def idx_bytes(array: np.ndarray, code: int = 8) -> bytes:
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + shape + array.tobytes()


def from_idx(data: bytes) -> np.ndarray:
    return idx(io.BytesIO(data), len(data), "toy")


def frugal(read: Callable[[bytes], object], data: bytes, room: int = 4 << 20) -> None:
    """Reads data or refuses them, and takes no memory out of proportion."""
    said = ""
    tracemalloc.start()
    try:
        read(data)
    except UndriftError as error:
        said = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < room + 100 * len(data)
    assert len(said.splitlines()) <= 1
    assert len(said) < 600


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_idx(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(pack(idx_bytes(IMAGES)))
    array = read_idx(path)
    assert array.dtype == np.uint8
    assert array.flags.writeable
    assert np.array_equal(array, IMAGES)


@pytest.mark.parametrize(
    ("code", "kind"), [(9, "i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")]
)
def test_idx_of_other_numbers(code: int, kind: str) -> None:
    array = from_idx(idx_bytes(np.arange(6).reshape(2, 3).astype(kind), code))
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert array.dtype.isnative


HUGE = bytes([0, 0, 8, 3]) + struct.pack(">3I", 60_000, 2**20, 2**10)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "starts with nothing"),
        (b"\0\0\x08", "starts with"),
        (b"PK\x03\x04", "starts with 50 4b 03 04"),
        (b"\0\0\x08\x00", "0 dimensions"),
        (b"\0\0\x08\xff" + bytes(2000), "255 dimensions"),
        (HUGE + bytes(100), "needs 64424509440000 bytes"),
        (gzip.compress(HUGE + bytes(100), mtime=0), "needs 64424509440000 bytes"),
        (idx_bytes(IMAGES)[:-1], "there are 59"),
        (idx_bytes(IMAGES) + b"x", "there are 61"),
        (gzip.compress(idx_bytes(IMAGES)[:-1], mtime=0), "ends after 59 of 60"),
        (gzip.compress(idx_bytes(IMAGES) + b"x", mtime=0), "more than the 60 bytes"),
        (gzip.compress(idx_bytes(IMAGES), mtime=0)[:-9], "not a valid idx"),
        (gzip.compress(idx_bytes(IMAGES), mtime=0)[:-8] + bytes(8), "CRC"),
    ],
)
def test_idx_that_lies(data: bytes, says: str) -> None:
    with pytest.raises(UndriftError, match=r"toy: not a valid idx file .*fetch it again") as error:
        from_idx(data)
    assert says in str(error.value)
    frugal(from_idx, data)


def test_a_gzip_bomb_is_not_unpacked() -> None:
    small = bytes([0, 0, 8, 1]) + struct.pack(">I", 10)
    bomb = gzip.compress(small + bytes(50 << 20), mtime=0)
    with pytest.raises(UndriftError, match="more than the 10 bytes"):
        from_idx(bomb)
    frugal(from_idx, bomb)


def test_idx_larger_than_expected(tmp_path: Path) -> None:
    bomb = gzip.compress(idx_bytes(np.zeros((50 << 20), np.uint8)), 1, mtime=0)
    path = tmp_path / "images.gz"
    path.write_bytes(bomb)
    with pytest.raises(UndriftError, match="needs 52428800 bytes, more than 47040000"):
        read_idx(path, 60_000 * 28 * 28)
    frugal(lambda data: idx(io.BytesIO(data), len(data), "toy", 60_000 * 28 * 28), bomb)


def test_a_missing_file_and_odd_rows(tmp_path: Path) -> None:
    with pytest.raises(UndriftError, match="no such file"):
        read_idx(tmp_path / "nothing")
    (tmp_path / "rows").write_bytes(bytes(range(12)))
    assert read_rows(tmp_path / "rows", 4).tolist() == np.arange(12).reshape(3, 4).tolist()
    with pytest.raises(UndriftError, match="12 bytes are not rows of 5"):
        read_rows(tmp_path / "rows", 5)
    with pytest.raises(UndriftError, match="at most 3"):
        read_bytes(tmp_path / "rows", limit=3)


def tar_of(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def link(name: str, target: str, kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def members(data: bytes, path: Path, *names: str, limit: int = 1 << 31) -> dict[str, bytes]:
    path.write_bytes(data)
    return dict(tar_files(path, names or None, limit))


def test_tar_members_are_read_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    data = tar_of((tarfile.TarInfo("./x/one"), b"1"), (tarfile.TarInfo("x/two"), b"22"))
    assert members(data, path) == {"x/one": b"1", "x/two": b"22"}
    assert members(data, path, "x/two", "x/three") == {"x/two": b"22"}
    assert list(tmp_path.iterdir()) == [path]


def test_tar_links_and_escapes_reach_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    data = tar_of(
        link("x/soft", "../secret", tarfile.SYMTYPE),
        link("x/hard", "/etc/hostname", tarfile.LNKTYPE),
        link("x/device", "", tarfile.CHRTYPE),
        (tarfile.TarInfo("../escaped"), b"data"),
        (tarfile.TarInfo("/absolute"), b"data"),
    )
    (tmp_path / "in").mkdir()
    found = members(data, tmp_path / "in" / "a.tar.gz")
    assert found == {"../escaped": b"data", "/absolute": b"data"}  # names only, never paths
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "secret"]


def test_tar_that_lies(tmp_path: Path) -> None:
    data = tar_of((tarfile.TarInfo("big"), bytes(5000)), mode="w")
    with pytest.raises(UndriftError, match="big claims 5000 bytes"):
        members(data, tmp_path / "a.tar", limit=100)
    with pytest.raises(UndriftError, match="not a valid tar"):
        members(data[:3000], tmp_path / "a.tar")
    with pytest.raises(UndriftError, match="not a valid tar"):
        members(b"no archive", tmp_path / "a.tar")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_tar_however_it_is_packed(mode: str, tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes((1 << 20) + 1)
    data = tar_of((tarfile.TarInfo("x"), content), mode=mode)
    assert members(data, tmp_path / "a") == {"x": content}


def test_tar_whose_files_are_too_large_together(tmp_path: Path) -> None:
    data = tar_of(*((tarfile.TarInfo(name), bytes(5000)) for name in "abc"))
    assert len(members(data, tmp_path / "a", limit=15_000)) == 3
    assert len(members(data, tmp_path / "a", "a", "c", limit=10_000)) == 2
    with pytest.raises(UndriftError, match="c claims 5000 bytes"):
        members(data, tmp_path / "a", limit=14_999)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_tar_with_a_name_of_any_length(kind: bytes, tmp_path: Path) -> None:
    name = tarfile.TarInfo("name")
    name.type = kind
    data = tar_of((name, b"n" * (50 << 20)), (tarfile.TarInfo("x"), b"1"))
    with pytest.raises(UndriftError, match="a header of 52428800 bytes"):
        members(data, tmp_path / "a")
    frugal(lambda data: members(data, tmp_path / "a"), data)


def zipped(path: Path, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in/file", content)
    return path


def from_zip(path: Path, name: str = "in/file", limit: int = 1 << 31) -> bytes:
    with zip_member(path, name, limit) as (file, size):
        content = file.read()
        assert len(content) == size
        return content


def test_zip_members_are_read_in_place(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", b"content")
    assert from_zip(path) == b"content"
    with pytest.raises(UndriftError, match="no member in/other"):
        from_zip(path, "in/other")
    with pytest.raises(UndriftError, match="claims 9 bytes that unpack to 7"):
        from_zip(path, limit=6)
    packed = zipped(tmp_path / "b.zip", gzip.compress(idx_bytes(IMAGES), mtime=0))
    with zip_member(packed, "in/file") as (file, size):
        assert np.array_equal(idx(file, size, packed), IMAGES)


@pytest.mark.parametrize("place", [20, 24])  # packed and unpacked size in the table of contents
def test_zip_that_lies(place: int, tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", bytes(500))
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\x01\x02") + place
    data[start : start + 4] = struct.pack("<I", 1 << 24)
    path.write_bytes(data)
    with pytest.raises(UndriftError, match="claims"):
        from_zip(path)
    frugal(lambda _: from_zip(path), bytes(data))


def mutations(valid: bytes) -> st.SearchStrategy[bytes]:
    """Valid bytes with some changed, cut out, doubled or added."""
    change = st.tuples(
        st.integers(0, len(valid)), st.integers(0, 8), st.binary(max_size=8)
    )  # at, length, instead

    def apply(changes: list[tuple[int, int, bytes]]) -> bytes:
        data = valid
        for at, length, instead in changes:
            data = data[:at] + instead + data[at + length :]
        return data

    return st.lists(change, min_size=1, max_size=4).map(apply)


@given(mutations(idx_bytes(IMAGES)))
def test_fuzz_idx(data: bytes) -> None:
    frugal(from_idx, data)


@given(mutations(gzip.compress(idx_bytes(IMAGES), mtime=0)))
def test_fuzz_gzipped_idx(data: bytes) -> None:
    frugal(from_idx, data)


@given(mutations(idx_bytes(IMAGES)).map(gzip.compress))
def test_fuzz_idx_inside_gzip(data: bytes) -> None:
    frugal(from_idx, data)


TAR = tar_of((tarfile.TarInfo("x/one"), b"1" * 600), (tarfile.TarInfo("two"), b"2"), mode="w")


@given(mutations(TAR[:3072]))
def test_fuzz_tar(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.tar"
    frugal(lambda data: members(data, path), data)


@given(mutations(gzip.compress(TAR, mtime=0)))
def test_fuzz_packed_tar(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.tar.gz"
    frugal(lambda data: members(data, path), data)


@given(st.data())
def test_fuzz_zip(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.zip"
    valid = zipped(path, bytes(500)).read_bytes()

    def read(changed: bytes) -> None:
        path.write_bytes(changed)
        from_zip(path)

    frugal(read, data.draw(mutations(valid)))


def test_large_arrays_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images").write_bytes(idx_bytes(IMAGES))
    assert not isinstance(formats.read_idx(tmp_path / "images"), np.memmap)
    monkeypatch.setattr(formats, "LARGE", 8)
    mapped = formats.read_idx(tmp_path / "images")
    assert isinstance(mapped, np.memmap)
    assert np.array_equal(mapped, IMAGES)
