"""Installs the peers: published releases of other gateways, each in its own environment with pinned packages.

Usage: python bench/peers.py

The program installs missing and outdated peers.
"""

import hashlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
LOCKS = HERE.parent / "requirements"
Command = tuple[list[str], dict[str, str]]
"""The program in the peer's environment with its arguments, and the environment variables."""


@dataclass(frozen=True, slots=True)
class PeerResources:
    """The resources of a running peer.

    Attributes:
        port: The port to listen on.
        other_port: A port for other interfaces of the peer.
        server: The address of the model server.
        state: The peer's own directory.
    """

    port: int
    other_port: int
    server: str
    state: Path


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer.

    Attributes:
        name: The name in ``requirements/bench-NAME.txt`` and ``bench/peers/NAME``.
        label: The name in the tables.
        command: The function that returns the command line.
        model: The peer's name of the model.
        python: The required Python version, if the project's version is too old.
    """

    name: str
    label: str
    command: Callable[[PeerResources], Command]
    model: str = "stub"
    python: str = ""

    @property
    def directory(self) -> Path:
        """Return the directory of the configuration and the environment."""
        return HERE / "peers" / self.name

    @property
    def environment(self) -> Path:
        """Return the virtual environment."""
        return self.directory / ".venv"

    @property
    def installed(self) -> bool:
        """Return whether the environment matches the lock."""
        stamp = self.environment / "lock.sha256"
        return stamp.is_file() and stamp.read_text() == self.lock_hash

    @property
    def lock_hash(self) -> str:
        """Return the SHA-256 of the lock file."""
        return hashlib.sha256((LOCKS / f"bench-{self.name}.txt").read_bytes()).hexdigest()


def _litellm(resources: PeerResources) -> Command:
    arguments = ["litellm", "--config", str(HERE / "peers" / "litellm" / "config.yaml")]
    return [
        *arguments,
        "--host",
        "127.0.0.1",
        "--port",
        str(resources.port),
        "--num_workers",
        "1",
        "--telemetry",
        "False",
    ], {
        "BENCH_SERVER": f"{resources.server}/v1",
        "LITELLM_LOG": "ERROR",
        # The package's own price list avoids network access. No other contender requires a key.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }


def _hayhooks(resources: PeerResources) -> Command:
    arguments = ["hayhooks", "run", "--host", "127.0.0.1", "--port", str(resources.port), "--without-tracing"]
    pipelines = str(HERE / "peers" / "hayhooks" / "pipelines")
    return [*arguments, "--without-monitoring", "--pipelines-dir", pipelines], {
        "BENCH_SERVER": f"{resources.server}/v1",
        "LOG": "ERROR",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
    }


def _ogx(resources: PeerResources) -> Command:
    arguments = [
        "ogx",
        "run",
        str(HERE / "peers" / "ogx" / "config.yaml"),
        "--port",
        str(resources.port),
        "--insecure",
    ]
    return arguments, {
        "BENCH_SERVER": f"{resources.server}/v1",
        "BENCH_STATE": str(resources.state),
        "OGX_LOGGING": "all=error",
    }


def _router(resources: PeerResources) -> Command:
    arguments = [
        "vllm-router",
        "--host",
        "127.0.0.1",
        "--port",
        str(resources.port),
        "--worker-urls",
        resources.server,
    ]
    return [
        *arguments,
        "--policy",
        "round_robin",
        "--log-level",
        "error",
        "--prometheus-port",
        str(resources.other_port),
    ], {}


PEERS = (
    Peer("vllm-router", "vllm-router (Rust)", _router),
    Peer("hayhooks", "hayhooks", _hayhooks),
    Peer("ogx", "OGX (Llama Stack)", _ogx, model="stub/stub", python="3.12"),
    Peer("litellm", "LiteLLM proxy", _litellm),
)


def _guarded_litellm(resources: PeerResources) -> Command:
    arguments, environment = _litellm(resources)
    plain, guarded = (str(HERE / "peers" / "litellm" / name) for name in ("config.yaml", "guarded.yaml"))
    return [guarded if each == plain else each for each in arguments], environment


def _nemo(resources: PeerResources) -> Command:
    return _nemo_with(resources, engine="")


def _iorails(resources: PeerResources) -> Command:
    return _nemo_with(resources, engine="1")


def _nemo_with(resources: PeerResources, engine: str) -> Command:
    directory = HERE / "peers" / "nemo"
    # A wrapper program, because the server has no option to disable its logs, which use most of its time.
    arguments = ["python", str(directory / "serve.py"), "server", "--config", str(directory / "configs")]
    return [*arguments, "--default-config-id", "bench", "--disable-chat-ui", "--port", str(resources.port)], {
        "NEMO_GUARDRAILS_IORAILS_ENGINE": engine,
        "MAIN_MODEL_ENGINE": "openai",
        "MAIN_MODEL_BASE_URL": f"{resources.server}/v1",
        "OPENAI_API_KEY": "unused",
        "DO_NOT_TRACK": "1",
    }


GUARDS = (
    Peer("nemo", "NeMo Guardrails", _nemo),
    Peer("nemo", "NeMo Guardrails, IORails", _iorails),
    Peer("litellm", "LiteLLM, content filter", _guarded_litellm),
)
"""The peers with detectors for the same two patterns."""


def install(peer: Peer) -> str:
    """Create the environment of a peer; return an error message, or an empty text."""
    uv = str(Path(sys.executable).with_name("uv"))
    steps = (
        ["venv", "--quiet", "--clear", "--no-python-downloads", "--python", peer.python or sys.executable],
        ["pip", "install", "--quiet", "--require-hashes", "--no-deps", "--python", str(peer.environment)],
    )
    inputs = ([str(peer.environment)], ["-r", str(LOCKS / f"bench-{peer.name}.txt")])
    for step, last in zip(steps, inputs, strict=True):
        result = subprocess.run([uv, "--no-config", *step, *last], capture_output=True, text=True, check=False)
        if result.returncode:
            return result.stderr.strip().partition("\n")[0]
    (peer.environment / "lock.sha256").write_text(peer.lock_hash)
    return ""


def main() -> int:
    """Install the peers. The benchmark omits peers that cannot be installed."""
    for peer in (*PEERS, *GUARDS):
        if not peer.installed:
            print(f"==> {peer.label}", flush=True)
            if problem := install(peer):
                print(f"    cannot be installed, and is omitted: {problem}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
