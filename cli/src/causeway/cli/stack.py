"""The platform on one machine (a stack): its processes, ports and settings."""

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

from causeway.cli import health, reservation, stack_file
from causeway.cli.answers import Readiness
from causeway.cli.client import Client
from causeway.cli.errors import CommandError, Unreachable
from causeway.cli.reservation import HOST
from causeway.cli.supervisor import Program, Supervisor, with_last_lines
from servicekit import permissions
from servicekit.broker import Broker
from servicekit.errors import CausewayError
from servicekit.setting_names import NAMES

BROKER = "nats"
GATEWAY = "gateway"
INGEST = "ingest"
RETRIEVER = "retriever"
# The services start in this order and stop in reverse order, so that all services still run while the gateway
# finishes its requests.
SERVICES = (RETRIEVER, "generator", "guardrails", INGEST, GATEWAY)

_DRAIN_SECONDS = 8.0  # for a service to finish its requests after SIGTERM
_GRACE_SECONDS = 10.0  # from SIGTERM to SIGKILL
_POLL_SECONDS = 0.2
_REWRITE_SECONDS = 1.0  # between attempts to write ``stack.json``
_MIN_STREAM_BYTES = 1024 * 1024
_DISK_SHARE = 8  # the default limit of a stream is at most 1/8 of the free disk space


class Stack:
    """Runs the NATS server (the broker) and the five services as supervised processes.

    Args:
        data_dir: The directory of all stored data, the logs, and ``stack.json`` while the stack runs.
        port: The gateway's port; 0 chooses a free one.
        auth: The authentication mode, a value of ``CAUSEWAY_AUTH``.
        report: Called with a message, for example that a process ended and will restart.
        echo: Called with the name of a process and each line of its output.

    Raises:
        InUse: Another stack uses the directory, or another process uses the port.
        CommandError: The directory cannot be written, or parts of the platform are not installed.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *,
        auth: str = "none",
        report: Callable[[str], None],
        echo: Callable[[str, str], None] | None = None,
    ) -> None:
        if missing := [name for name in SERVICES if importlib.util.find_spec(name) is None]:
            raise CommandError(f"these services are not installed: {', '.join(missing)}")
        self.data_dir = data_dir.absolute()
        self._auth = auth
        self._lock = reservation.lock(self.data_dir)
        self._sockets: dict[str, Path] = {}
        try:
            stack_file.remove(self.data_dir)
            names = (GATEWAY, BROKER)
            self.ports = dict(zip(names, reservation.ports(port, len(names)), strict=True))
            self.metrics_ports = _metrics_ports()
            # Other users of this machine can access the ports, but not the sockets. So NATS requires passwords,
            # which also limit each service to its own subjects.
            self._passwords = {user: secrets.token_urlsafe(24) for user in permissions.USERS}
            broker = _broker_command(Broker(self.data_dir / BROKER, self.ports[BROKER], self._passwords))
            self._sockets = reservation.sockets(self.data_dir, SERVICES[:-1])
            self._report = report
            self._ready = self._write_failed = False
            self._rewrite: asyncio.TimerHandle | None = None
            self._states = dict.fromkeys((BROKER, *SERVICES), "starting")
            self._supervisor = Supervisor(
                self.data_dir / "logs",
                report=report,
                on_pid_change=self._write,
                echo=echo,
                grace=_GRACE_SECONDS,
                pass_fds=[self._lock],
            )
        except BaseException:
            reservation.remove_sockets(self._sockets.values())
            os.close(self._lock)
            raise
        self._broker = Program(BROKER, broker, self._environment(BROKER))
        # -P keeps the current directory out of `sys.path`. Otherwise a file retriever.py there would be imported.
        self._services = [
            Program(name, [sys.executable, "-P", "-m", name], self._environment(name)) for name in SERVICES
        ]

    @property
    def url(self) -> str:
        """Return the URL of the gateway."""
        return f"http://{HOST}:{self.ports[GATEWAY]}"

    @property
    def has_console(self) -> bool:
        """Return whether the gateway serves the console: no setting disables it, and the package contains it."""
        if os.environ.get("CAUSEWAY_CONSOLE", "true").lower() in ("false", "0", "no", "off"):
            return False
        gateway = importlib.util.find_spec("gateway")
        return gateway is not None and (Path(gateway.origin or "").parent / "static" / "index.html").is_file()

    @property
    def nats_url(self) -> str:
        """Return the URL of the broker with the operator's credentials."""
        return self._nats_url(permissions.OPERATOR)

    def _nats_url(self, user: str) -> str:
        return f"nats://{user}:{self._passwords[user]}@{HOST}:{self.ports[BROKER]}"

    def _environment(self, name: str) -> Mapping[str, str]:
        metrics_port = self.metrics_ports.get(name)
        targets = {f"CAUSEWAY_{service.upper()}_TARGET": f"unix:{path}" for service, path in self._sockets.items()}
        # The setting CAUSEWAY_INGEST_TARGET does not exist.
        targets = {variable: target for variable, target in targets.items() if variable in NAMES}
        return {
            "CAUSEWAY_LOG_FORMAT": "console",
            # gRPC's core logs closed connections in its own format. The services' logs already contain them.
            "GRPC_VERBOSITY": "ERROR",
            "CAUSEWAY_SHUTDOWN_GRACE": f"{_DRAIN_SECONDS:g}",
            "CAUSEWAY_NATS_STREAM_BYTES": str(self._stream_bytes()),
            "CAUSEWAY_CONSOLE": str(self.has_console).lower(),
            # The caller's variables override the variables above, but not the variables below.
            **os.environ,
            "CAUSEWAY_GATEWAY_PORT": str(self.ports[GATEWAY]),
            **({"CAUSEWAY_GRPC_SOCKET": str(self._sockets[name])} if name in self._sockets else {}),
            **targets,
            **({"CAUSEWAY_METRICS_PORT": str(metrics_port)} if metrics_port is not None else {}),
            "CAUSEWAY_HOST": HOST,
            "CAUSEWAY_AUTH": self._auth,
            **({"CAUSEWAY_NATS_URL": self._nats_url(name)} if name in self._passwords else {}),
            "CAUSEWAY_DATA_DIR": str(self.data_dir),
            "PYTHONUNBUFFERED": "1",
        }

    def _stream_bytes(self) -> int:
        """Return the maximum size of a stream in bytes; on a small disk, it is less than the default."""
        # Imported here, because the import of the client of NATS takes longer than most commands.
        from servicekit.stream_limits import STREAM_BYTES

        return max(_MIN_STREAM_BYTES, min(STREAM_BYTES, shutil.disk_usage(self.data_dir).free // _DISK_SHARE))

    def description(self) -> dict[str, object]:
        """Return the content of ``stack.json``: the public part, and NATS' URL with the operator's password."""
        return {**self.public_description(), "nats_url": self.nats_url}

    def public_description(self) -> dict[str, object]:
        """Return the part without secrets: the URL, ``stack.json``'s path, each process's id and addresses."""
        pids = self._supervisor.pids
        return {
            "url": self.url,
            "services": {
                name: {"pid": pid}
                | ({"port": self.ports[name]} if name in self.ports else {"socket": str(self._sockets[name])})
                | ({"metrics_port": self.metrics_ports[name]} if name in self.metrics_ports else {})
                for name, pid in pids.items()
            },
            "stack_file": str(self.data_dir / stack_file.NAME),
        }

    async def start(self, progress: Callable[[Mapping[str, str]], None], *, within: float) -> None:
        """Start all processes, and wait until the gateway and the ingest workers are ready.

        Args:
            progress: Called with the state of each process after each check; ``ok`` means ready.
            within: The maximum number of seconds.

        Raises:
            CommandError: The start failed or was not complete in time. The message contains the reason and, if a
                process has exited, the last lines of its log.
        """
        await self._wait_for_start(self._start(progress), within)
        self._ready = True
        self._write()

    async def start_store(self, *, within: float) -> None:
        """Start only the broker and the retriever, which store all data, and wait until both are ready.

        Raises:
            CommandError: The start failed or was not complete in time.
        """
        await self._wait_for_start(self._start_store(), within)

    async def _wait_for_start(self, starting: Coroutine[object, object, None], within: float) -> None:
        failure = asyncio.create_task(self._supervisor.wait_for_failure())
        ready = asyncio.create_task(starting)
        try:
            done, _ = await asyncio.wait([failure, ready], timeout=within, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise CommandError(self._not_ready_message(within))
            for task in done:
                task.result()
        finally:
            for task in (failure, ready):
                task.cancel()
            await asyncio.gather(failure, ready, return_exceptions=True)

    async def _start_store(self) -> None:
        self._supervisor.start(self._broker)
        await self._wait_for_port(self.ports[BROKER])
        self._supervisor.start(self._services[SERVICES.index(RETRIEVER)])
        while True:
            if await health.problem(self.target(RETRIEVER)) is None:
                return
            await asyncio.sleep(_POLL_SECONDS)

    def target(self, name: str) -> str:
        """Return the gRPC address of a service."""
        return f"unix:{self._sockets[name]}"

    async def _start(self, progress: Callable[[Mapping[str, str]], None]) -> None:
        progress(self._states)
        self._supervisor.start(self._broker)
        await self._wait_for_port(self.ports[BROKER])  # services exit if they cannot reach the broker
        self._states[BROKER] = "ok"
        for program in self._services:
            self._supervisor.start(program)
        async with Client(self.url) as client:
            while True:
                readiness = await _readiness(client)
                if readiness is not None:
                    self._states |= {
                        GATEWAY: "ok",
                        **{service.name: service.status for service in readiness.services},
                    }
                if await health.problem(self.target(INGEST)) is None:
                    self._states[INGEST] = "ok"
                progress(self._states)
                if readiness is not None and readiness.ready and self._states[INGEST] == "ok":
                    return
                await asyncio.sleep(_POLL_SECONDS)

    async def _wait_for_port(self, port: int) -> None:
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return

    def _not_ready_message(self, within: float) -> str:
        waiting = [name for name, state in self._states.items() if state != "ok"]
        message = f"not ready after {within:g} s: {', '.join(waiting)}. Logs are in {self.data_dir / 'logs'}"
        # Only the gateway reports the states of the services. Without it, the process with the most exits is the
        # likely cause.
        exits = self._supervisor.exits
        suspect = max((name for name in waiting if name in exits), key=lambda name: exits[name], default=None)
        if suspect is None:
            return message
        return with_last_lines(message, [f"{suspect} | {line}" for line in self._supervisor.last_lines(suspect)])

    async def wait_for_failure(self) -> None:
        """Wait until a process fails permanently.

        Raises:
            CommandError: A process has failed.
        """
        await self._supervisor.wait_for_failure()

    async def stop(self) -> None:
        """Stop the processes in reverse order, delete ``stack.json`` and release the directory."""
        self._ready = False
        self._write()  # writes nothing, but cancels a scheduled retry
        try:
            await self._supervisor.stop()
        finally:
            stack_file.remove(self.data_dir)
            reservation.remove_sockets(self._sockets.values())
            os.close(self._lock)

    def kill(self) -> None:
        """Kill the processes immediately; the caller must still call `stop`."""
        self._supervisor.kill()

    def _write(self) -> None:
        """Write ``stack.json``; report a failure once, and retry until it is written."""
        if self._rewrite is not None:
            self._rewrite.cancel()
            self._rewrite = None
        if not self._ready:
            return
        try:
            stack_file.write(self.data_dir, self.description())
        except OSError as error:
            if not self._write_failed:
                self._report(f"{stack_file.NAME} cannot be written ({error.strerror}); will retry")
            self._write_failed = True
            self._rewrite = asyncio.get_running_loop().call_later(_REWRITE_SECONDS, self._write)
        else:
            if self._write_failed:
                self._report(f"{stack_file.NAME} was written")
            self._write_failed = False


def _metrics_ports() -> dict[str, int]:
    """Return a metrics port for each service, in ascending order from ``CAUSEWAY_METRICS_PORT``.

    Return no ports if the variable is not set or is not a number.
    """
    first = os.environ.get("CAUSEWAY_METRICS_PORT", "")
    if not first.isdecimal():
        return {}  # the services report the invalid value
    return dict(zip(SERVICES, reservation.ports_from(int(first), len(SERVICES)), strict=True))


def _broker_command(broker: Broker) -> list[str]:
    try:
        return broker.command()
    except CausewayError as error:
        raise CommandError(error.message) from error


async def _readiness(client: Client) -> Readiness | None:
    try:
        return await client.readiness()
    except Unreachable:
        return None
