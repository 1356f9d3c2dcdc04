"""Benchmark of the platform's overhead on a GPU: a decoder on Triton, called directly and through the platform.

The decoder has a billion random weights and batches its streams (bench/triton_decoder). The same load, 1, 8 and 64
concurrent streams, runs directly on Triton's gRPC, and through gateway and generator. The benchmark compares the
tokens per second and the time to the first token. The platform must cost less than 5 % of the tokens per second.

Usage: python bench/bench_triton_gpu.py [--check] [--size tiny] [--tokens 128] [--results DIR]
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import load
import numpy as np
import uvloop
import yaml
from causeway_testing.servers import free_ports
from causeway_testing.triton import triton_server
from load import Load, percentile
from processes import running, wait_for
from servicekit.broker import Broker
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient

STREAMS = (1, 8, 64)
ANSWERS_A_STREAM = 4
MAX_OVERHEAD = 0.05
PROMPT = "Tell me something."
# One process of the load reads about ten thousand tokens per second.
STREAMS_A_PROCESS = 8
MAX_PROCESSES = 4


@dataclass(frozen=True, slots=True)
class Figures:
    """The results of one load.

    Attributes:
        rate: The tokens per second of all streams.
        first: The median time to the first token in seconds.
    """

    rate: float
    first: float


async def direct(address: str, tokens: int, streams: int, answers: int) -> Load:
    """Call Triton directly: request a number of answers in a number of concurrent streams."""
    parameters = json.dumps({"max_tokens": tokens}).encode()
    values: list[tuple[str, str, object]] = [
        ("text_input", "BYTES", f"user: {PROMPT}\n\nassistant:".encode()),
        ("stream", "BOOL", True),
        ("sampling_parameters", "BYTES", parameters),
    ]
    inputs = []
    for name, kind, value in values:
        inputs.append(InferInput(name, [1], kind))
        inputs[-1].set_data_from_numpy(np.array([value], object if kind == "BYTES" else bool))
    measured, remaining = Load(), answers
    client = InferenceServerClient(address)

    async def requests() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "decoder", "inputs": inputs}

    async def stream() -> None:
        nonlocal remaining
        while remaining > 0:
            remaining -= 1
            begin, count = time.perf_counter(), 0
            async for result, error in client.stream_infer(requests()):
                if error is not None:
                    raise error
                if not count:
                    measured.first_bytes.append(time.perf_counter() - begin)
                assert result.as_numpy("text_output") is not None
                count += 1
            measured.durations.append(time.perf_counter() - begin)
            if count != tokens:
                raise RuntimeError(f"{count} tokens instead of {tokens}")

    begin = time.perf_counter()
    await asyncio.gather(*(stream() for _ in range(streams)))
    measured.seconds = time.perf_counter() - begin
    await client.close()
    return measured


def ask_directly(address: str, tokens: int, streams: int, answers: int) -> Load:
    """Run the load of one process on Triton."""
    return uvloop.run(direct(address, tokens, streams, answers))


def ask_platform(address: str, tokens: int, streams: int, answers: int) -> Load:
    """Run the load of one process on the gateway."""
    body = {
        "model": "decoder",
        "stream": True,
        "max_tokens": tokens,
        "messages": [{"role": "user", "content": PROMPT}],
    }
    url = f"http://{address}/v1/chat/completions"
    return uvloop.run(load.run(url, [json.dumps(body).encode()], streams, answers))


WAYS = {"directly": ask_directly, "platform": ask_platform}


def measure(pool: ProcessPoolExecutor, way: str, address: str, tokens: int, streams: int) -> Figures:
    """Run concurrent streams, each with a few answers in sequence, from as many processes as necessary."""
    processes = min(MAX_PROCESSES, -(-streams // STREAMS_A_PROCESS))
    shares = [streams // processes + (number < streams % processes) for number in range(processes)]
    begin = time.perf_counter()
    futures = [pool.submit(WAYS[way], address, tokens, share, share * ANSWERS_A_STREAM) for share in shares]
    results = [future.result() for future in futures]
    seconds = max(time.perf_counter() - begin, 1e-9) if len(results) > 1 else results[0].seconds
    answers = sum(len(each.durations) for each in results)
    return Figures(
        answers * tokens / seconds, percentile([first for each in results for first in each.first_bytes], 0.5)
    )


@contextmanager
def decoder(size: str) -> Iterator[str]:
    """Run Triton with the decoder, and yield the address of its gRPC port."""
    with TemporaryDirectory() as directory:
        repository = Path(directory)
        shutil.copytree(Path(__file__).parent / "triton_decoder", repository / "decoder")
        with (repository / "decoder" / "config.pbtxt").open("a") as config:
            config.write(f'parameters {{ key: "size" value: {{ string_value: "{size}" }} }}\n')
        with triton_server(repository, models=["decoder"]) as address:
            yield address


@contextmanager
def causeway(triton: str) -> Iterator[str]:
    """Run a gateway and a generator with Triton, and yield the gateway's address: host and port."""
    generator, gateway, broker = free_ports(3)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        models = {
            "servers": {"triton": {"kind": "triton", "url": triton}},
            "models": [{"name": "decoder", "deployments": [{"server": "triton"}]}],
        }
        (directory / "models.yaml").write_text(yaml.safe_dump(models))
        nats = subprocess.Popen(Broker(directory / "nats", broker).command(), stderr=subprocess.DEVNULL)
        environment = {
            **os.environ,
            "CAUSEWAY_GENERATOR_PORT": str(generator),
            "CAUSEWAY_MODELS_FILE": str(directory / "models.yaml"),
            "CAUSEWAY_MODEL": "decoder",
            "CAUSEWAY_GATEWAY_PORT": str(gateway),
            "CAUSEWAY_GENERATOR_TARGET": f"127.0.0.1:{generator}",
            "CAUSEWAY_NATS_URL": f"nats://127.0.0.1:{broker}",
            "CAUSEWAY_LOG_LEVEL": "WARNING",
        }
        ours = [
            subprocess.Popen([sys.executable, "-m", name], env=environment) for name in ("generator", "gateway")
        ]
        stack.enter_context(running(nats))
        stack.enter_context(running(*ours))
        body = {"model": "decoder", "max_tokens": 2, "messages": [{"role": "user", "content": PROMPT}]}
        wait_for(f"http://127.0.0.1:{gateway}/v1/chat/completions", json.dumps(body).encode())
        yield f"127.0.0.1:{gateway}"


def gpu() -> str:
    """Return the name of the GPU, or an empty text."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip().splitlines()[0] if result.returncode == 0 and result.stdout.strip() else ""


def table(rows: list[dict[str, float]]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "| streams | tokens/s directly | platform | overhead | first token directly | platform |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['streams']:.0f} | {row['direct_rate']:,.0f} | {row['platform_rate']:,.0f} | {row['overhead']:.1%}"
        f" | {row['direct_first_ms']:.0f} ms | {row['platform_first_ms']:.0f} ms |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark. Return 0 if the overhead is small, 1 if not, and 2 if the large decoder has no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only check that a GPU is available")
    parser.add_argument("--size", choices=("billion", "tiny"), default="billion", help="tiny runs on a CPU")
    parser.add_argument("--tokens", type=int, default=128, help="tokens per answer (default: 128)")
    parser.add_argument("--results", type=Path, help="directory for the figures (default: none)")
    arguments = parser.parse_args()
    name = gpu()
    if arguments.size == "billion" and not name:
        print("This benchmark needs an NVIDIA GPU, but `nvidia-smi` does not find one.", file=sys.stderr)
        print("To try its code on a CPU, run `make .venv/.torch`, and then:", file=sys.stderr)
        print(".venv/bin/python bench/bench_triton_gpu.py --size tiny", file=sys.stderr)
        return 2
    if arguments.check:
        return 0
    rows = []
    with (
        ProcessPoolExecutor(MAX_PROCESSES, mp_context=get_context("spawn")) as pool,
        decoder(arguments.size) as triton,
        causeway(triton) as gateway,
    ):
        addresses = {"directly": triton, "platform": gateway}
        for streams in STREAMS:
            results: dict[str, list[Figures]] = {way: [] for way in WAYS}
            # The first round warms up. Then both ways alternate, so that other load on the machine affects both.
            for round_number in range(4):
                for way, address in addresses.items():
                    figures = measure(pool, way, address, arguments.tokens, streams)
                    if round_number:
                        results[way].append(figures)
            best = {way: max(each, key=lambda figures: figures.rate) for way, each in results.items()}
            ours, theirs = best["platform"], best["directly"]
            rows.append(
                {
                    "streams": streams,
                    "direct_rate": theirs.rate,
                    "platform_rate": ours.rate,
                    "overhead": 1 - ours.rate / theirs.rate,
                    "direct_first_ms": theirs.first * 1000,
                    "platform_first_ms": ours.first * 1000,
                }
            )
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    machine = f"{name or 'no GPU'}, {os.cpu_count()} cores, Python {platform.python_version()}"
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine,
        "size": arguments.size,
        "rows": rows,
    }
    print(f"\n{machine}, decoder of size {arguments.size}, {arguments.tokens} tokens per answer\n\n{table(rows)}")
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
        (arguments.results / "triton-gpu.json").write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(row["overhead"] < MAX_OVERHEAD for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
