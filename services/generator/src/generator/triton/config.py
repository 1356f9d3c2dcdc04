"""The configuration of a deployment on Triton."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class TritonConfig:
    """A model on a Triton Inference Server.

    Attributes:
        address: The address of its gRPC port, ``host:port``.
        model: Its name in the server's model repository.
        version: Its version there; empty: the server's choice, usually the newest.
        tls: The connection is encrypted.
        ca_file: PEM certificates to verify the server's; None: those of gRPC.
        api_key: Sent as ``authorization: Bearer …``, for a proxy in front of the server.
        chat_template: Turns messages into the plain prompt of the server: a file or the source itself, as in
            `generator.tokenizers.templates.load_template`. Empty: each message as ``role: text``.
        window: Context window in tokens; None: the parameter ``context_window`` of the model configuration.
        answer_tokens: The default limit of an answer.
        connect: The maximum number of seconds to reach the server and describe the model.
        first_byte: The maximum number of seconds until the answer begins.
        idle: The maximum number of seconds between two pieces of it.
        most_bytes: The maximum number of bytes of a piece of an answer.
        most_bytes: Largest piece of an answer that is taken.
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
    most_bytes: int = 8 * 1024 * 1024
