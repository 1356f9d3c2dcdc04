"""What a deployment of a model on Triton needs."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class TritonConfig:
    """A model on a Triton Inference Server.

    Attributes:
        address: Of its gRPC port, ``host:port``.
        model: Its name in the server's model repository.
        version: Its version there; empty is the server's choice, usually the newest.
        tls: The connection is encrypted.
        ca_file: Certificates, in PEM, that the server's is checked against; None for those that gRPC knows.
        api_key: Goes along as ``authorization: Bearer …``, for a proxy in front of the server.
        chat_template: How messages become the plain prompt that the server takes: a file or the source itself, as
            `generator.tokenizers.templates.load_template` reads it. Empty: each message as ``role: text``.
        window: Context window in tokens; None to take the model configuration's parameter ``context_window``.
        answer_tokens: Most tokens of an answer whose request does not say.
        connect: Seconds to wait for the server to be reached and to describe the model.
        first_byte: Seconds until the answer begins.
        idle: Seconds between two pieces of it.
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
