"""A platform for a benchmark: selected services on one core, and the other programs on another core."""

import asyncio
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_retrieval import INDEX, SERVICE, fill
from causeway.retriever.v1 import retriever_pb2_grpc
from causeway_testing.servers import free_ports
from comparison import CONTENDER_CORE, LOAD_CORE, Stub
from processes import running, start_pinned, wait_for
from servicekit.broker import Broker
from servicekit.channel import open_channel

MODEL = "stub"
_POLICY = Path(__file__).with_name("two_detectors.yaml")
_START_SECONDS = 90
_QUESTION = b'{"model":"%b","messages":[{"role":"user","content":"Hi"}]}' % MODEL.encode()


@dataclass(frozen=True, slots=True)
class Platform:
    """A running platform.

    Attributes:
        url: The URL of the gateway.
        nats_url: The URL of the broker.
        pids: The process ids of the services by name, and of the broker as ``nats``.
    """

    url: str
    nats_url: str
    pids: Mapping[str, int]


@contextmanager
def run_platform(
    services: Sequence[str], stub: Stub, *, chunks: int = 0, python: str = sys.executable
) -> Iterator[Platform]:
    """Run a platform for the block.

    Args:
        services: The names of the services. With ``retriever`` the platform has a default index; with
            ``guardrails`` it detects two patterns in each answer.
        stub: The model server.
        chunks: The size of the index.
        python: The interpreter of the environment with the services.
    """
    retriever, generator, gateway, broker, model, guardrails, ingest = free_ports(7)
    nats_url = f"nats://127.0.0.1:{broker}"
    with TemporaryDirectory() as directory:
        environments = {
            "gateway": {
                "CAUSEWAY_GATEWAY_PORT": str(gateway),
                "CAUSEWAY_RETRIEVER_TARGET": f"127.0.0.1:{retriever}",
                "CAUSEWAY_GENERATOR_TARGET": f"127.0.0.1:{generator}",
                "CAUSEWAY_GUARDRAILS_TARGET": f"127.0.0.1:{guardrails}",
                "CAUSEWAY_NATS_URL": nats_url,
                **({"CAUSEWAY_DEFAULT_INDEX": INDEX} if "retriever" in services else {}),
                **({"CAUSEWAY_POLICY_FILE": str(_POLICY)} if "guardrails" in services else {}),
            },
            "retriever": {"CAUSEWAY_RETRIEVER_PORT": str(retriever), "CAUSEWAY_DATA_DIR": directory},
            "generator": {
                "CAUSEWAY_GENERATOR_PORT": str(generator),
                "CAUSEWAY_OPENAI_BASE_URL": f"http://127.0.0.1:{model}/v1",
                "CAUSEWAY_OPENAI_MODELS": MODEL,
                "CAUSEWAY_OPENAI_CONTEXT_WINDOW": "8192",
                "CAUSEWAY_MODEL": MODEL,
            },
            "guardrails": {"CAUSEWAY_GUARDRAILS_PORT": str(guardrails)},
            "ingest": {
                "CAUSEWAY_INGEST_PORT": str(ingest),
                "CAUSEWAY_NATS_URL": nats_url,
                "CAUSEWAY_RETRIEVER_TARGET": f"127.0.0.1:{retriever}",
            },
        }
        nats = start_pinned(LOAD_CORE, *Broker(Path(directory) / "nats", broker).command())
        model_command = (sys.executable, "-m", "causeway_testing.model_server", "--port", str(model))
        model_options = ("--tokens", str(stub.tokens), "--pace", str(stub.pace))
        with running(nats, start_pinned(LOAD_CORE, *model_command, *model_options)):
            quiet = {"CAUSEWAY_LOG_LEVEL": "WARNING"}
            processes = {
                name: start_pinned(CONTENDER_CORE, python, "-m", name, environment={**quiet, **environments[name]})
                for name in services
            }
            with running(*processes.values()):
                if chunks:
                    asyncio.run(_fill(retriever, chunks))
                url = f"http://127.0.0.1:{gateway}"
                wait_for(f"{url}/v1/chat/completions", _QUESTION, _START_SECONDS)
                pids = {name: process.pid for name, process in processes.items()}
                yield Platform(url, nats_url, {**pids, "nats": nats.pid})


async def _fill(port: int, chunks: int) -> None:
    async with open_channel(f"127.0.0.1:{port}", [SERVICE]) as channel:
        await asyncio.wait_for(channel.channel_ready(), _START_SECONDS)
        await fill(retriever_pb2_grpc.RetrieverServiceStub(channel), random.Random(chunks), chunks)
