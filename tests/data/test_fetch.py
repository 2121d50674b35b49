"""Downloads, against a server that breaks off, lies and refuses; and files found on disk."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.server import Server, serving
from undrift.config import UndriftError
from undrift.data.files import download, fetch
from undrift.data.files.fetch import File

CONTENT = bytes(range(256)) * 4000
PATH = "/toy/numbers.bin"


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A cache of its own, no waiting, every notice shown again."""
    monkeypatch.setattr(download, "WAIT", 0)
    monkeypatch.setenv("UNDRIFT_DATA_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("UNDRIFT_DATA_MIRROR", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    fetch.notice.cache_clear()
    yield
    fetch.use_data_dir(None)
    fetch.use_mirror(None)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving({PATH: CONTENT}) as server:
        yield server


def file(server: Server, **changes: object) -> File:
    facts = {
        "name": "numbers.bin",
        "url": server.url + PATH,
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "size": len(CONTENT),
    }
    return File(**(facts | changes))  # type: ignore[arg-type]


def left() -> list[str]:
    """What lies in the data folder."""
    folder = fetch.data_dir()
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def get(wanted: File) -> bytes:
    path = fetch.locate("toy", [wanted])["numbers.bin"]
    assert path == fetch.data_dir() / "toy" / "numbers.bin"
    return path.read_bytes()


def refused(wanted: File, *says: str) -> None:
    """The download fails, says why and what to do, and nothing counts as downloaded."""
    with pytest.raises(UndriftError) as error:
        get(wanted)
    said = str(error.value)
    for part in (*says, "toy/numbers.bin", wanted.url, "--data-dir", "UNDRIFT_DATA_MIRROR"):
        assert part in said
    assert str(fetch.data_dir() / "toy") in said
    assert "\n" not in said
    assert "toy/numbers.bin" not in left()


def test_a_complete_file_is_downloaded_once(server: Server) -> None:
    assert get(file(server)) == CONTENT
    assert get(file(server)) == CONTENT
    assert server.asked == [(PATH, None)]
    assert left() == ["toy/numbers.bin"]


def test_md5_and_no_size(server: Server) -> None:
    md5 = hashlib.md5(CONTENT).hexdigest()
    assert get(file(server, sha256=None, md5=md5, size=None)) == CONTENT


def test_a_download_that_breaks_off_is_resumed(server: Server) -> None:
    server.cut = [300_000, 200_000]
    assert get(file(server)) == CONTENT
    assert [wanted for _, wanted in server.asked] == [None, "bytes=300000-", "bytes=500000-"]
    assert left() == ["toy/numbers.bin"]


def test_half_a_file_never_counts_and_is_continued_another_day(server: Server) -> None:
    server.cut = [100_000, 0, 0]
    refused(file(server))
    assert left() == ["toy/numbers.bin.part"]
    assert get(file(server)) == CONTENT
    assert server.asked[-1] == (PATH, "bytes=100000-")
    assert left() == ["toy/numbers.bin"]


def test_a_server_without_ranges_starts_again(server: Server) -> None:
    server.ranges, server.cut = False, [300_000]
    assert get(file(server)) == CONTENT
    assert len(server.asked) == 2


def test_a_server_that_does_not_say_how_long(server: Server) -> None:
    server.length, server.cut = False, [300_000]
    assert get(file(server)) == CONTENT
    assert len(server.asked) == 2


def test_a_busy_server_is_asked_again(server: Server) -> None:
    server.busy = 2
    assert get(file(server)) == CONTENT


def test_a_corrupted_file(server: Server) -> None:
    wrong = b"x" + CONTENT[1:]
    server.files[PATH] = wrong
    expected, found = (hashlib.sha256(data).hexdigest() for data in (CONTENT, wrong))
    refused(file(server), expected, found)
    assert left() == []
    assert len(server.asked) == 1


def test_a_half_file_of_something_else_is_thrown_away(server: Server) -> None:
    part = fetch.data_dir() / "toy" / "numbers.bin.part"
    part.parent.mkdir(parents=True)
    for stale in (b"old" * 100, b"o" * len(CONTENT), b"o" * (len(CONTENT) + 1)):
        part.write_bytes(stale)
        assert get(file(server)) == CONTENT
        assert left() == ["toy/numbers.bin"]
        (fetch.data_dir() / "toy" / "numbers.bin").unlink()


def test_a_half_file_longer_than_what_the_server_has(server: Server) -> None:
    part = fetch.data_dir() / "toy" / "numbers.bin.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"o" * (len(CONTENT) + 1))
    assert get(file(server, size=None)) == CONTENT


def test_a_missing_file(server: Server) -> None:
    refused(file(server, url=server.url + "/elsewhere"), "404 Not Found")
    assert len(server.asked) == 1
    assert not (fetch.data_dir() / "toy").exists()


def test_a_file_of_the_wrong_size(server: Server) -> None:
    server.files[PATH] = CONTENT + b"more"
    refused(file(server), f"expected {len(CONTENT)} bytes, the server has {len(CONTENT) + 4}")
    server.length = False
    refused(file(server), f"expected {len(CONTENT)} bytes, found")
    assert left() == []


def test_no_server() -> None:
    with serving({}) as server:
        wanted = file(server)
    refused(wanted, "refused")


def test_a_mirror(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = file(server, url="http://127.0.0.1:9/gone")
    monkeypatch.setenv("UNDRIFT_DATA_MIRROR", server.url + "/")
    assert get(wanted) == CONTENT
    monkeypatch.setenv("UNDRIFT_DATA_MIRROR", "http://127.0.0.1:9")
    fetch.use_mirror(server.url)
    (fetch.data_dir() / "toy" / "numbers.bin").unlink()
    assert get(wanted) == CONTENT
    with pytest.raises(UndriftError, match="http://"):
        fetch.use_mirror("ftp://somewhere")


def test_many_at_once_download_it_once(server: Server) -> None:
    wanted = file(server)
    threads = [threading.Thread(target=get, args=(wanted,)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert get(wanted) == CONTENT
    assert [wanted for _, wanted in server.asked] == [None]


def test_a_damaged_file_in_the_cache_is_fetched_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    path = fetch.data_dir() / "toy" / "numbers.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:-1])
    assert get(file(server)) == CONTENT
    assert f"expected {len(CONTENT)} bytes, found {len(CONTENT) - 1}" in caplog.text
    path.write_bytes(CONTENT[:-1] + b"x")
    assert get(file(server)) == CONTENT
    assert "expected sha256" in caplog.text


def test_files_in_a_named_folder_are_used_with_one_notice(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "numbers.bin").write_bytes(b"mine")
    fetch.use_data_dir(tmp_path)
    for _ in range(3):
        found = fetch.locate("toy", [file(server)])
        assert found == {"numbers.bin": tmp_path / "numbers.bin"}
    assert len(caplog.records) == 1
    assert "expected 1024000 bytes, found 4): used because" in caplog.text
    assert server.asked == []


def test_nothing_is_downloaded_into_a_folder_to_look_in(server: Server, tmp_path: Path) -> None:
    fetch.use_data_dir(tmp_path / "own")
    with pytest.raises(UndriftError, match=r"own: there is no such folder; .* numbers.bin"):
        fetch.locate("toy", [file(server)])
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "letters.bin").touch()
    with pytest.raises(
        UndriftError, match=r"own: it has no numbers.bin of .* it has letters.bin\."
    ):
        fetch.locate("toy", [file(server)])
    assert server.asked == []
    assert left() == ["letters.bin"]
    fetch.use_data_dir(tmp_path / "own", download=True)
    assert get(file(server)) == CONTENT


def test_where_files_are_looked_for(server: Server, tmp_path: Path) -> None:
    fetch.use_data_dir(tmp_path)
    for folder in ("", "other", "toy"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "numbers.bin").write_bytes(CONTENT)
        found = fetch.locate("toy", [file(server)], folders=("other",))
        assert found["numbers.bin"] == tmp_path / folder / "numbers.bin"
    assert fetch.find("toy", ["numbers.bin", "letters.bin"]) is None
    assert fetch.missing("toy", [file(server), file(server, name="letters.bin")]) == [
        file(server, name="letters.bin")
    ]


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch.data_dir() == tmp_path / "cache"
    monkeypatch.delenv("UNDRIFT_DATA_DIR")
    assert "undrift" in fetch.data_dir().parts
    fetch.use_data_dir(tmp_path / "new")
    assert fetch.data_dir() == tmp_path / "new"
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UndriftError, match="this is a file"):
        fetch.use_data_dir(tmp_path / "file")


def test_a_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(UndriftError, match="cannot be downloaded"):
        fetch.locate("toy", [file(server)])
