import os
import socket
import tempfile
from pathlib import Path

import pytest
from causeway.cli import reservation
from causeway.cli.errors import CommandError, InUse


def test_a_locked_directory_is_refused(tmp_path: Path) -> None:
    """A locked directory cannot be locked again, and the error names the URL of its stack. It can be locked after
    the lock has ended.
    """
    first = reservation.lock(tmp_path / "data")
    (tmp_path / "data" / "stack.json").write_text('{"url": "http://127.0.0.1:1234"}')
    with pytest.raises(InUse, match=r"at http://127\.0\.0\.1:1234"):
        reservation.lock(tmp_path / "data")
    os.close(first)
    os.close(reservation.lock(tmp_path / "data"))


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    """If the path is a file, `lock` raises an error."""
    (tmp_path / "data").write_text("")
    with pytest.raises(CommandError, match="the data directory cannot be used"):
        reservation.lock(tmp_path / "data")


def test_a_port_in_use_is_refused() -> None:
    """The error for a port in use names the port."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(InUse, match=f"port {port} cannot be used"):
            reservation.ports(port, 3)


@pytest.mark.parametrize("requested", [0, 1])
def test_ports_differ(requested: int) -> None:
    """All ports differ. The first port is the requested port, if a port is requested."""
    first = reservation.ports(0, 1)[0] if requested else 0
    found = reservation.ports(first, 6)
    assert len(set(found)) == 6
    assert all(port > 0 for port in found)
    if requested:
        assert found[0] == first


def test_ports_in_use_are_skipped() -> None:
    """`ports_from` skips ports in use, and raises an error if there are too few free ports."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        used = other.getsockname()[1]
        found = reservation.ports_from(used, 3)
    assert found == sorted(found)
    assert used not in found
    assert used < found[0] < found[-1] < used + 100
    with pytest.raises(InUse, match="65535 upwards"):
        reservation.ports_from(65535, 2)
    assert len(set(reservation.ports_from(0, 5))) == 5


def test_the_data_directory_is_private(tmp_path: Path) -> None:
    """A new directory, an empty directory and an existing data directory get mode 700. Other directories do not
    change.
    """
    for name in ("new", "empty", "old", "other"):
        data = tmp_path / name
        if name != "new":
            data.mkdir(0o755)
        if name in ("old", "other"):
            (data / ("stack.lock" if name == "old" else "letter.txt")).touch()
        os.close(reservation.lock(data))
        assert data.stat().st_mode & 0o777 == (0o755 if name == "other" else 0o700), name


def test_sockets_are_private(tmp_path: Path) -> None:
    """The sockets are in a directory of mode 700. Removing the sockets also removes the directory."""
    found = reservation.sockets(tmp_path, ("retriever", "generator"))
    directory = tmp_path / "sockets"
    assert found == {name: directory / f"{name}.sock" for name in ("retriever", "generator")}
    assert directory.stat().st_mode & 0o777 == 0o700
    for path in found.values():
        path.touch()
    reservation.remove_sockets(found.values())
    assert not directory.exists()


@pytest.mark.parametrize("is_long", [False, True])
def test_sockets_of_a_long_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_long: bool) -> None:
    """If the path is too long, the sockets are in a private temporary directory with a short path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        temporary = tmp_path / ("y" * 80) if is_long else Path(short)
        temporary.mkdir(exist_ok=True)
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
        found = reservation.sockets(tmp_path / ("x" * 100), ("retriever",))
        path = found["retriever"]
        assert path.parent.parent == (Path("/tmp") if is_long else temporary)
        assert len(str(path)) <= 103
        assert path.parent.stat().st_mode & 0o777 == 0o700
        reservation.remove_sockets(found.values())
        assert not path.parent.exists()
