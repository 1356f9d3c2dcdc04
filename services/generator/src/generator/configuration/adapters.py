"""Creates the adapters that the configuration describes, for each kind of server."""

import importlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from generator.configuration.schema import (
    AzureEntry,
    DeploymentEntry,
    ExtractiveEntry,
    ModelEntry,
    OpenAIEntry,
    ServerEntry,
    Timeouts,
    TritonEntry,
)
from generator.extractive.model import ExtractiveModel
from generator.gathering import Gathering
from generator.ports import Model, TokenCounter
from generator.tokenizers.templates import tokenizer_template

if TYPE_CHECKING:
    from generator.triton.config import TritonConfig

# The modules of a kind of server. A process without such a server does not import them, which saves at least 20 MB.
_ADAPTERS = {
    "openai": ("generator.openai.model", "generator.openai.server"),
    "azure": ("generator.openai.model", "generator.openai.server"),
    "triton": ("generator.triton.model", "generator.triton.wire"),
}


class Owner(Protocol):
    """An object that holds connections."""

    async def aclose(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Defaults:
    """Default values for what the models file omits.

    Attributes:
        connect: The maximum number of seconds to connect.
        first_token: The maximum number of seconds until a streamed answer begins.
        whole: The maximum number of seconds until an answer in one piece is complete.
        idle: The maximum number of seconds between two pieces of a stream.
        gathering: Decides when to pause the streams of OpenAI servers; None: never.
    """

    connect: float = 5.0
    first_token: float = 60.0
    whole: float = 100.0
    idle: float = 60.0
    gathering: Gathering | None = None


def load_adapters(servers: Iterable[ServerEntry]) -> None:
    """Import the libraries for these servers. The import takes seconds; while requests are served, use a thread."""
    for kind in {server.kind for server in servers}:
        for module in _ADAPTERS.get(kind, ()):
            importlib.import_module(module)


def open_server(entry: ServerEntry, defaults: Defaults) -> Owner | None:
    """Return the connections that all deployments on a server share; None for servers without the OpenAI API."""
    if not isinstance(entry, OpenAIEntry):
        return None
    from generator.openai.endpoint import Endpoint
    from generator.openai.reply import Limits
    from generator.openai.server import ModelServer

    if isinstance(entry, AzureEntry):
        endpoint = Endpoint.azure(entry.url, entry.api_version, entry.api_key, entry.headers, entry.query)
    else:
        endpoint = Endpoint(entry.url, entry.api_key, headers=entry.headers, query=entry.query)
    connect, whole, idle = _timeouts(entry.timeouts, defaults)
    return ModelServer(endpoint, Limits(connect=connect, first_byte=whole, idle=idle), defaults.gathering)


def first_token_timeout(entry: ServerEntry, defaults: Defaults) -> float:
    """Return the maximum number of seconds until a streamed answer of this server begins.

    The extractive model has no time limit, so the number is infinite.
    """
    if isinstance(entry, ExtractiveEntry):
        return math.inf
    return entry.timeouts.first_token or defaults.first_token


def open_model(
    model: ModelEntry,
    deployment: DeploymentEntry,
    server: ServerEntry,
    connections: Owner | None,
    tokens: TokenCounter,
    defaults: Defaults,
) -> Model:
    """Return a deployment's adapter.

    Args:
        model: The model.
        deployment: The deployment.
        server: The server.
        connections: The result of `open_server` for the server.
        tokens: Counts tokens for the model.
        defaults: Default values for what the file omits.

    Raises:
        ValueError: The chat template of a model on Triton cannot be read.
    """
    if isinstance(server, OpenAIEntry):
        from generator.openai.model import OpenAIModel
        from generator.openai.server import ModelServer

        assert isinstance(connections, ModelServer)
        return OpenAIModel(
            model.name,
            connections,
            remote_name=deployment.model or model.name,
            tokens=tokens,
            window=model.context_window,
            headers=deployment.headers,
            reasoning=model.reasoning,
        )
    if isinstance(server, TritonEntry):
        from generator.triton.model import TritonModel

        return TritonModel(model.name, triton_config(model, deployment, server, defaults), tokens=tokens)
    return ExtractiveModel(model.name, window=model.context_window)


def triton_config(
    model: ModelEntry, deployment: DeploymentEntry, server: TritonEntry, defaults: Defaults
) -> "TritonConfig":
    """Return the configuration of a deployment on Triton; see `open_model` for the arguments."""
    from generator.triton.config import TritonConfig

    connect, whole, idle = _timeouts(server.timeouts, defaults)
    return TritonConfig(
        address=server.url,
        model=deployment.model or model.name,
        version=deployment.version,
        tls=server.tls,
        ca_file=server.ca_file,
        api_key=server.api_key,
        chat_template=model.chat_template or _template_directory(Path(model.tokenizer)),
        window=model.context_window,
        answer_tokens=deployment.answer_tokens,
        connect=connect,
        first_byte=whole,
        idle=idle,
    )


def _template_directory(tokenizer: Path) -> str:
    """Return the directory of a tokenizer if it contains a chat template, else an empty text.

    Args:
        tokenizer: The path of the tokenizer's file or directory. Other values, for example the name of an encoding,
            have no directory.
    """
    if not tokenizer.name or not tokenizer.exists():
        return ""
    directory = tokenizer if tokenizer.is_dir() else tokenizer.parent
    return str(directory) if tokenizer_template(directory / "tokenizer.json") is not None else ""


def _timeouts(timeouts: Timeouts, defaults: Defaults) -> tuple[float, float, float]:
    return (
        timeouts.connect or defaults.connect,
        timeouts.whole or defaults.whole,
        timeouts.idle or defaults.idle,
    )
