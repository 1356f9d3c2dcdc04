"""A real Triton Inference Server for tests and benchmarks, on a free port, with models of the python backend.

``make .venv/.triton`` installs the server in a separate environment below this one. Models run in processes with
the Python and the packages of that environment. To run the server without a test (see ``--help``)::

    python -m causeway_testing.triton deploy/triton/model_repository --model words --port 8001
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from causeway_testing.servers import free_ports

_START_SECONDS = 90.0
_END_SECONDS = 60.0
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_PACKAGES = Path("lib") / f"python{_VERSION}" / "site-packages"


class NoTriton(RuntimeError):
    """The server is not installed, or cannot run models with this Python."""


@contextlib.contextmanager
def triton_server(
    repository: Path,
    *,
    models: Sequence[str] = (),
    port: int = 0,
    arguments: Sequence[str] = (),
    backends: Sequence[Path] = (),
) -> Iterator[str]:
    """Run a server during the block, and yield the address of its gRPC port.

    Args:
        repository: The model repository.
        models: The models to load at the start; empty: all models. With a list, other models can be loaded later.
        port: The gRPC port; 0: a free port.
        arguments: Further arguments of the command line. The arguments that this function sets take precedence.
        backends: Directories of backends written in Python.

    Raises:
        NoTriton: The server is not installed, or cannot run models with this Python.
        RuntimeError: The server ended before it was ready. The message has the end of its output.
        TimeoutError: The server was not ready in time.
    """
    environment = Path(sys.prefix) / "triton"
    server_directory = environment / _PACKAGES / "pytriton" / "tritonserver"
    port = port or free_ports(1)[0]
    control = ["--model-control-mode", "explicit", *(f"--load-model={model}" for model in models)]
    with tempfile.TemporaryDirectory(prefix="triton-") as directory:
        log = Path(directory) / "log"
        command = [
            str(server_directory / "bin" / "tritonserver"),
            *arguments,  # first, because Triton uses the last of repeated arguments
            *(
                "--model-repository",
                str(repository),
                "--backend-directory",
                str(_backends(server_directory, Path(directory), backends)),
            ),
            *("--grpc-address", "127.0.0.1", "--grpc-port", str(port)),
            *("--allow-http", "false", "--allow-metrics", "false", "--exit-timeout-secs", "2"),
            *(control if models else ()),
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **_python(environment)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the processes of its models end with it
            )
        try:
            address = f"127.0.0.1:{port}"
            _wait(address, process, log)
            yield address
        finally:
            _end(process)


def _backends(server_directory: Path, directory: Path, further_backends: Sequence[Path]) -> Path:
    """Copy the python backend, its stub program for this Python, and further backends into one directory."""
    stub = server_directory / "python_backend_stubs" / _VERSION / "triton_python_backend_stub"
    if not stub.is_file():
        what = f"does not support Python {_VERSION}" if server_directory.is_dir() else "is not installed"
        raise NoTriton(f"The Triton server {what}. Install it with: make .venv/.triton")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        raise NoTriton(
            f"The Triton server needs a shared libpython{_VERSION}, but this Python ({sys.base_prefix}) was built "
            "without it. Install the environment with another Python: make clean setup PYTHON=/usr/bin/python3"
        )
    python = directory / "backends" / "python"
    python.mkdir(parents=True)
    for file in (server_directory / "backends" / "python").iterdir():
        # Copied, because Triton refuses a linked library for a backend in Python.
        shutil.copy2(file, python)
    (python / stub.name).symlink_to(stub)  # it finds its libraries relative to its own path
    for backend in further_backends:
        shutil.copytree(backend, python.parent / backend.name)
    return python.parent


def _python(environment: Path) -> dict[str, str]:
    """Return the environment variables with which the server's embedded Python uses the environment.

    The embedded Python ignores Python's own variables. It finds the environment through PATH.
    """
    libraries = [str(sysconfig.get_config_var("LIBDIR")), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        "PATH": os.pathsep.join([str(environment / "bin"), os.environ.get("PATH", os.defpath)]),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
    }


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        while time.monotonic() < end:
            with contextlib.suppress(grpc.RpcError):
                answer = health.Check(health_pb2.HealthCheckRequest(), timeout=1)  # type: ignore[attr-defined]  # not in its types
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return
            if process.poll() is not None:
                raise RuntimeError(f"Triton ended with {process.returncode}:\n{log.read_text()[-4000:]}")
            time.sleep(0.05)
    raise TimeoutError(f"Triton was not ready in time:\n{log.read_text()[-4000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)
    with contextlib.suppress(ProcessLookupError):  # no process of the session is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> None:
    """Serve until a signal, and print the address of the gRPC port once the server is ready."""
    parser = argparse.ArgumentParser(
        prog="python -m causeway_testing.triton", description="A Triton server on this machine's CPU."
    )
    parser.add_argument("repository", type=Path, help="directory of the models")
    parser.add_argument("--model", action="append", default=[], help="a model to load; repeatable")
    parser.add_argument("--port", type=int, default=0, help="gRPC port (default: a free one)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        contextlib.suppress(KeyboardInterrupt),
        triton_server(arguments.repository, models=arguments.model, port=arguments.port) as address,
    ):
        print(address, flush=True)  # noqa: T201  # the caller reads the address
        while True:  # short sleeps, because a signal that arrives just before an endless wait would not end it
            time.sleep(0.2)


if __name__ == "__main__":
    main()
