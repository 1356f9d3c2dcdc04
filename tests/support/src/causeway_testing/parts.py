"""The processes of a small platform that tests kill, freeze and restart: NATS, a generator, two gateways."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from servicekit.broker import Broker

from causeway_testing.servers import free_ports

_START_SECONDS = 90.0
_POLL_SECONDS = 0.05


@dataclass
class Part:
    """A process with a fixed port and fixed settings, which tests can restart.

    Attributes:
        name: The name in messages.
        port: The port of the process.
        command: The command line.
        environment: The settings.
        log: The file for the output.
    """

    name: str
    port: int
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    process: asyncio.subprocess.Process | None = field(default=None, init=False)

    async def start(self) -> None:
        """Start the process, and wait until it listens."""
        with self.log.open("ab") as log:
            environment = {**os.environ, **self.environment}
            self.process = await asyncio.create_subprocess_exec(
                *self.command, env=environment, stdout=log, stderr=log
            )
        end = time.monotonic() + _START_SECONDS
        while not await self._listens():
            assert self.process.returncode is None, f"{self.name} ended: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < end, f"{self.name} does not listen"
            await asyncio.sleep(_POLL_SECONDS)

    async def stop(self, signal_number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the process, and wait for its end."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal_number)
            self.process.send_signal(signal.SIGCONT)
            await self.process.wait()

    def freeze(self) -> None:
        """Freeze the process."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the frozen process."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def _listens(self) -> bool:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.close()
            return True
        return False


@contextlib.asynccontextmanager
async def parts(directory: Path, model_url: str, **settings: str) -> AsyncIterator[dict[str, Part]]:
    """Start NATS, a generator and two gateways, and yield them by name.

    Args:
        directory: The directory for data and output.
        model_url: The URL of the model server, which must be running.
        settings: The settings of the gateways, in capitals and without the prefix ``CAUSEWAY_``.
    """
    nats_port, generator_port, port_one, port_two = free_ports(4)
    log = {"CAUSEWAY_LOG_FORMAT": "json"}
    generator = {
        "CAUSEWAY_GENERATOR_PORT": str(generator_port),
        "CAUSEWAY_OPENAI_BASE_URL": model_url,
        "CAUSEWAY_OPENAI_MODELS": "stub",
        "CAUSEWAY_MODEL": "stub",
    }
    gateway = {
        "CAUSEWAY_GENERATOR_TARGET": f"127.0.0.1:{generator_port}",
        "CAUSEWAY_NATS_URL": f"nats://127.0.0.1:{nats_port}",
        **{f"CAUSEWAY_{name}": value for name, value in settings.items()},
    }
    programs: dict[str, tuple[int, Sequence[str], dict[str, str]]] = {
        "nats": (nats_port, Broker(directory / "nats", nats_port).command(), {}),
        "generator": (generator_port, (sys.executable, "-m", "generator"), generator),
        "gateway one": (
            port_one,
            (sys.executable, "-m", "gateway"),
            gateway | {"CAUSEWAY_GATEWAY_PORT": str(port_one)},
        ),
        "gateway two": (
            port_two,
            (sys.executable, "-m", "gateway"),
            gateway | {"CAUSEWAY_GATEWAY_PORT": str(port_two)},
        ),
    }
    processes = {
        name: Part(name, port, command, log | environment, directory / f"{name.replace(' ', '-')}.log")
        for name, (port, command, environment) in programs.items()
    }
    try:
        await asyncio.gather(*(part.start() for part in processes.values()))
        yield processes
    finally:
        await asyncio.gather(*(part.stop() for part in processes.values()))
