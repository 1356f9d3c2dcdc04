"""Reverse proxies for tests: real processes on loopback with the configurations of a documentation page.

A configuration is the fenced block below the heading with the proxy's name. It listens on port 80, and the address
of the gateway is ``gateway:8080``. A test replaces both by free ports.
"""

import asyncio
import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from causeway_testing.servers import free_ports

_START_SECONDS = 20.0
_NGINX = """
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
{user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    include {directory}/proxy.conf;
}}
"""
_CADDY = "{\n    admin off\n    auto_https off\n}\n"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A reverse proxy.

    Attributes:
        name: The heading on the page.
        program: The name of the program, which is on ``PATH`` or beside the interpreter.
        ports: Pairs of a pattern and its replacement, for the proxy's port and for the gateway's address.
        command: A function that writes a configuration into a directory and returns the program's arguments.
    """

    name: str
    program: str
    ports: Sequence[tuple[str, str]]
    command: Callable[[Path, str], Sequence[str]]

    @property
    def executable(self) -> str | None:
        """Return the path of the program, or None if it is not installed."""
        places = [os.environ.get("PATH", ""), "/usr/sbin", str(Path(sys.executable).parent)]
        return shutil.which(self.program, path=os.pathsep.join(places))

    @contextlib.asynccontextmanager
    async def started(self, directory: Path, configuration: str, gateway: int) -> AsyncIterator[int]:
        """Run the proxy in front of a gateway's port, yield the proxy's port, and stop the proxy at the end.

        Raises:
            RuntimeError: The proxy ended. The message has the end of its output.
            TimeoutError: The proxy does not listen within 20 s.
            ValueError: The configuration does not have the ports in the expected form.
        """
        assert self.executable is not None
        (port,) = free_ports(1)
        for pattern, replacement in self.ports:
            new = replacement.format(port=port, gateway=gateway)
            configuration, found = re.subn(pattern, new, configuration, flags=re.MULTILINE)
            if found != 1:
                raise ValueError(f"The configuration of {self.name} has {found} places like {pattern!r}, not one.")
        directory.mkdir(parents=True, exist_ok=True)
        arguments = self.command(directory, configuration)
        log = directory / "log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                self.executable,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory,
                env={**os.environ, "HOME": str(directory), "XDG_DATA_HOME": str(directory)},
            )
        try:
            await _wait_until_listening(port, process, log)
            yield port
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 60)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _wait_until_listening(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.returncode is not None:
            raise RuntimeError(f"The proxy ended with {process.returncode}: {log.read_text()[-2000:]}")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"The proxy does not listen: {log.read_text()[-2000:]}")


def configurations(page: str) -> Mapping[str, str]:
    """Return the configurations of a page by the name of the proxy."""
    found = {}
    for section in re.split(r"^#{2,} ", page, flags=re.MULTILINE):
        heading = section.partition("\n")[0]
        if heading in PROXIES:
            found[heading] = re.findall(r"^```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[0]
    return found


def _nginx(directory: Path, configuration: str) -> Sequence[str]:
    (directory / "proxy.conf").write_text(configuration)
    user = "user root;" if os.getuid() == 0 else ""  # without it, its workers cannot write into the directory
    (directory / "nginx.conf").write_text(_NGINX.format(directory=directory, user=user))
    return ["-p", str(directory), "-e", str(directory / "error.log"), "-c", str(directory / "nginx.conf")]


def _haproxy(directory: Path, configuration: str) -> Sequence[str]:
    (directory / "haproxy.cfg").write_text(configuration)
    return ["-db", "-f", str(directory / "haproxy.cfg")]


def _caddy(directory: Path, configuration: str) -> Sequence[str]:
    (directory / "Caddyfile").write_text(_CADDY + configuration)
    return ["run", "--adapter", "caddyfile", "--config", str(directory / "Caddyfile")]


def _envoy(directory: Path, configuration: str) -> Sequence[str]:
    (directory / "envoy.yaml").write_text(configuration)
    return ["-c", str(directory / "envoy.yaml"), "--disable-hot-restart", "--concurrency", "1", "-l", "warning"]


_GATEWAY = (r"\bgateway:8080\b", "127.0.0.1:{gateway}")
PROXIES: Mapping[str, Proxy] = {
    proxy.name: proxy
    for proxy in (
        Proxy("nginx", "nginx", [(r"\blisten 80;", "listen 127.0.0.1:{port};"), _GATEWAY], _nginx),
        Proxy("HAProxy", "haproxy", [(r"\bbind :80$", "bind 127.0.0.1:{port}"), _GATEWAY], _haproxy),
        Proxy("Caddy", "caddy", [(r"^:80 {", "http://:{port} {{\n    bind 127.0.0.1"), _GATEWAY], _caddy),
        Proxy(
            "Envoy",
            "envoy",
            [
                (r"{address: 0\.0\.0\.0, port_value: 80}", "{{address: 127.0.0.1, port_value: {port}}}"),
                (r"{address: gateway, port_value: 8080}", "{{address: 127.0.0.1, port_value: {gateway}}}"),
            ],
            _envoy,
        ),
    )
}
"""The proxies of the page, by name."""
