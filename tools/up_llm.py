"""Start Causeway with a small language model: ``make up-llm``.

The model is fast and small, and its answers are often wrong. It generates tokens without a GPU, a key or a separate
download. The program passes further arguments to ``causeway up``.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAME = "smollm2"
_PROGRAM = ROOT / "tools" / "small_model.py"
_START_SECONDS = 60.0


@contextlib.contextmanager
def model_server(python: Path) -> Iterator[str]:
    """Run the model's server on a free port, and yield the address of its API.

    Args:
        python: The interpreter of the environment of ``make .venv/.llm``.

    Raises:
        RuntimeError: The server does not start.
    """
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "address"
        process = subprocess.Popen([python, _PROGRAM, "--address-file", file], stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + _START_SECONDS
            while not file.exists():
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("The model server does not start. Install it with `make .venv/.llm`.")
                time.sleep(0.05)
            yield file.read_text()
        finally:
            process.terminate()
            process.wait(30)


def settings(address: str) -> dict[str, str]:
    """Return the environment variables with which Causeway uses the model."""
    return {
        "CAUSEWAY_OPENAI_BASE_URL": address,
        "CAUSEWAY_OPENAI_MODELS": f"{NAME}={NAME}",
        "CAUSEWAY_MODEL": NAME,
    }


def main() -> int:
    """Run the command; return the exit code of ``causeway up``."""
    binaries = Path(sys.executable).parent
    with model_server(ROOT / ".venv" / "llm" / "bin" / "python") as address:
        command = [str(binaries / "causeway"), "up", *sys.argv[1:]]
        platform = subprocess.Popen(command, env={**os.environ, **settings(address)})
        # Ctrl-C in a terminal also reaches the child process.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: platform.terminate())
        return platform.wait()


if __name__ == "__main__":
    sys.exit(main())
