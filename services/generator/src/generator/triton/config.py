"""The configuration of a deployment on Triton."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class TritonConfig:
    """A model on a Triton Inference Server.

    Attributes:
        address: The address of the server's gRPC port, ``host:port``.
        model: The name of the model in the server's model repository.
        version: The version of the model; empty: the server selects one, usually the newest.
        tls: The connection is encrypted.
        ca_file: PEM certificates that verify the server's certificate; None: gRPC's default certificates.
        api_key: The key for ``authorization: Bearer …``, for a proxy in front of the server.
        chat_template: The template that renders messages as one text: a file or the source, as in
            `generator.tokenizers.templates.load_template`. Empty: each message as ``role: text``.
        window: The context window in tokens; None: the parameter ``context_window`` of the model configuration.
        answer_tokens: The maximum number of tokens of an answer if the request sets no limit.
        connect: The maximum number of seconds until the connection is open and the server has described the model.
        first_byte: The maximum number of seconds until the answer begins.
        idle: The maximum number of seconds between two pieces of an answer.
        max_bytes: The maximum number of bytes of a piece of an answer.
    """

    address: str
    model: str
    version: str = ""
    tls: bool = False
    ca_file: Path | None = None
    api_key: SecretStr | None = None
    chat_template: str = ""
    window: int | None = None
    answer_tokens: int = 1024
    connect: float = 5.0
    first_byte: float = 120.0
    idle: float = 60.0
    max_bytes: int = 8 * 1024 * 1024
