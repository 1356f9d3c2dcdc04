"""The settings of the generator."""

from pathlib import Path

from pydantic import Field, SecretStr, field_validator
from servicekit.secret_file import check_sendable
from servicekit.settings import GrpcServiceSettings
from servicekit.yaml_values import URL_PATTERN


class Settings(GrpcServiceSettings):
    """The generator's settings; the variables begin with ``CAUSEWAY_``."""

    generator_port: int = Field(50052, ge=0, le=65535, description="Port to listen on; 0: a free port.")
    models_file: Path | None = Field(
        None,
        description="YAML file of servers and the models on them (docs/models.md); reloaded when it changes.",
    )
    model: str | None = Field(
        None,
        min_length=1,
        description="The default model. Unset: the first in CAUSEWAY_MODELS_FILE, or extractive without this file.",
    )
    openai_base_url: str | None = Field(
        None,
        pattern=URL_PATTERN,
        description="Base URL of one OpenAI-compatible server, with its version: http://127.0.0.1:8000/v1.",
    )
    openai_api_key: SecretStr | None = Field(
        None, description="Key of the OpenAI-compatible server. Unset: requests have no key."
    )
    openai_models: str = Field(
        "",
        description="Models of the OpenAI-compatible server, separated by commas: the public name, or "
        "public-name=server-name if the names differ.",
    )
    openai_context_window: int | None = Field(
        None,
        ge=1,
        description="Context window of CAUSEWAY_OPENAI_MODELS in tokens. Unset: as the server reports.",
    )
    openai_pictures: bool = Field(
        False,
        description="The models of CAUSEWAY_OPENAI_MODELS accept pictures of documents' pages in addition to text.",
    )
    openai_tools: bool = Field(
        False,
        description="The models of CAUSEWAY_OPENAI_MODELS call the tools that a request offers "
        "(docs/responses.md#documents).",
    )
    model_connect_timeout: float = Field(5.0, gt=0, description="Maximum seconds to connect to a model server.")
    model_first_token_timeout: float = Field(
        60.0,
        gt=0,
        description="Maximum seconds until a stream begins; otherwise the generator tries another deployment.",
    )
    model_whole_timeout: float = Field(
        100.0, gt=0, description="Maximum seconds until a non-streamed answer is complete, or a stream begins."
    )
    model_idle_timeout: float = Field(
        60.0, gt=0, description="Maximum seconds between two pieces of a model server's stream."
    )
    stream_interval_ms: int = Field(
        50,
        ge=0,
        le=1000,
        description="Longest pause, in milliseconds, between two reads of a model server's stream while the "
        "process is busy, so that several tokens arrive together; 0: no pauses.",
    )

    @field_validator("openai_api_key")
    @classmethod
    def _sendable(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            check_sendable(value.get_secret_value())
        return value

    @field_validator("openai_models")
    @classmethod
    def _named(cls, value: str) -> str:
        pairs = model_names(value)
        if any(not public or not server for public, server in pairs):
            raise ValueError("each entry must be a model's name, or public-name=server-name")
        if len({public for public, _ in pairs}) < len(pairs):
            raise ValueError("two models have the same public name")
        return value

    def openai_model_names(self) -> list[tuple[str, str]]:
        """Return the public name of each model of the OpenAI-compatible server, and its name on that server."""
        return model_names(self.openai_models)


def model_names(value: str) -> list[tuple[str, str]]:
    """Parse ``a, b=c`` to ``[(a, a), (b, c)]``."""
    pairs = []
    for entry in filter(None, (part.strip() for part in value.split(","))):
        public, equals, server = entry.partition("=")
        pairs.append((public.strip(), server.strip() if equals else public.strip()))
    return pairs
