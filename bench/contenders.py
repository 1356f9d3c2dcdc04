"""The contenders of a benchmark, each with its settings for production and on one core."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from causeway_testing.servers import free_ports
from peers import GUARDS, PEERS, Peer, PeerResources
from processes import running, start_pinned, wait_for
from servicekit.broker import Broker

DIRECT = "model server itself"
RELAY = "bare relay (Python)"
OURS = "causeway"
OURS_RESPONSES = "causeway, Responses API"
RESPONSES = "/v1/responses"
GUARDED = "causeway, two detectors"
LITELLM = "LiteLLM proxy"
_START_SECONDS = 90
_MODEL = "stub"
_POLICY = Path(__file__).with_name("two_detectors.yaml")


@dataclass(frozen=True, slots=True)
class Running:
    """A running contender.

    Attributes:
        url: The URL of chat completions, or of the Responses API.
        model: The contender's name of the model.
        pids: The process ids; empty for the model server itself.
    """

    url: str
    model: str
    pids: tuple[int, ...]


Start = Callable[[str, int], AbstractContextManager[Running]]
"""Runs a contender for a block, with the address of a model server and the number of a core."""


def guarded_contenders() -> dict[str, Start]:
    """Return the contenders by name: the model server, Causeway with and without detectors, and installed peers."""
    peers = {peer.label: partial(_peer, peer) for peer in GUARDS if peer.installed}
    return {DIRECT: _direct, OURS: _ours, GUARDED: partial(_ours, policy=_POLICY), **peers}


def contenders() -> dict[str, Start]:
    """Return the contenders by name: the model server, the relay, Causeway, and the installed peers."""
    peers = {peer.label: partial(_peer, peer) for peer in PEERS if peer.installed}
    return {DIRECT: _direct, RELAY: _relay, OURS: _ours, OURS_RESPONSES: _ours_responses, **peers}


@contextmanager
def _ours_responses(server: str, core: int) -> Iterator[Running]:
    """Run Causeway with the Responses API, without storing."""
    with _ours(server, core) as chat:
        yield Running(chat.url.replace("/v1/chat/completions", RESPONSES), chat.model, chat.pids)


@contextmanager
def _direct(server: str, _: int) -> Iterator[Running]:
    yield Running(f"{server}/v1/chat/completions", _MODEL, ())


@contextmanager
def _relay(server: str, core: int) -> Iterator[Running]:
    [port] = free_ports(1)
    program = str(Path(__file__).with_name("relay.py"))
    with running(start_pinned(core, sys.executable, program, "--port", str(port), "--target", server)) as pids:
        yield _wait_until_ready(port, _MODEL, pids)


@contextmanager
def _ours(server: str, core: int, policy: Path | None = None) -> Iterator[Running]:
    """Run a gateway and a generator on the core, and with a policy also the guardrails service.

    NATS is idle and runs on the other core.
    """
    generator, gateway, broker, guardrails = free_ports(4)
    with TemporaryDirectory() as directory:
        nats = start_pinned(1 - core, *Broker(Path(directory), broker).command())
        generator_process = start_pinned(
            core,
            *(sys.executable, "-m", "generator"),
            environment={
                "CAUSEWAY_GENERATOR_PORT": str(generator),
                "CAUSEWAY_OPENAI_BASE_URL": f"{server}/v1",
                "CAUSEWAY_OPENAI_MODELS": _MODEL,
                "CAUSEWAY_MODEL": _MODEL,
                "CAUSEWAY_LOG_LEVEL": "WARNING",
            },
        )
        gateway_process = start_pinned(
            core,
            *(sys.executable, "-m", "gateway"),
            environment={
                "CAUSEWAY_GATEWAY_PORT": str(gateway),
                "CAUSEWAY_GENERATOR_TARGET": f"127.0.0.1:{generator}",
                "CAUSEWAY_NATS_URL": f"nats://127.0.0.1:{broker}",
                "CAUSEWAY_LOG_LEVEL": "WARNING",
                **({"CAUSEWAY_POLICY_FILE": str(policy)} if policy else {}),
                "CAUSEWAY_GUARDRAILS_TARGET": f"127.0.0.1:{guardrails}",
            },
        )
        guardrails_processes = []
        if policy is not None:
            port = {"CAUSEWAY_GUARDRAILS_PORT": str(guardrails), "CAUSEWAY_LOG_LEVEL": "WARNING"}
            guardrails_processes.append(start_pinned(core, sys.executable, "-m", "guardrails", environment=port))
        with running(nats), running(generator_process, gateway_process, *guardrails_processes) as pids:
            yield _wait_until_ready(gateway, _MODEL, pids)


@contextmanager
def _peer(peer: Peer, server: str, core: int) -> Iterator[Running]:
    port, other = free_ports(2)
    with TemporaryDirectory() as state:
        (program, *arguments), environment = peer.command(PeerResources(port, other, server, Path(state)))
        home = {"HOME": state, "PATH": f"{peer.environment / 'bin'}:/usr/bin:/bin"}
        process = start_pinned(
            core, str(peer.environment / "bin" / program), *arguments, environment={**environment, **home}
        )
        with running(process) as pids:
            yield _wait_until_ready(port, peer.model, pids)


def _wait_until_ready(port: int, model_name: str, pids: list[int]) -> Running:
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    question = b'{"model":"%b","messages":[{"role":"user","content":"Hi"}]}' % model_name.encode()
    wait_for(url, question, _START_SECONDS)
    return Running(url, model_name, tuple(pids))
