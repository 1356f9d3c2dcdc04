"""The schema of ``models.yaml``: servers, and models with their deployments on them."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo
from servicekit.yaml_values import ExistingFile, Name, Seconds, Secret, Target, Text, Url

_MAX_PATH_LENGTH = 250


def _resolved(value: str, info: ValidationInfo) -> str:
    """Resolve an existing path relative to the models file; return other values unchanged."""
    folder = (info.context or {}).get("folder")
    if folder is None or not value or len(value) > _MAX_PATH_LENGTH or "{" in value:
        return value
    return str(folder / value) if (folder / value).exists() else value


FileOrText = Annotated[str, AfterValidator(_resolved)]
_HeaderName = Annotated[str, StringConstraints(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", to_lower=True)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Timeouts(_Entry):
    """Time-outs in seconds; the settings provide the missing ones."""

    connect: Seconds | None = None
    first_token: Seconds | None = None
    whole: Seconds | None = None
    idle: Seconds | None = None


class OpenAIEntry(_Entry):
    """A server with the OpenAI API."""

    kind: Literal["openai"] = "openai"
    url: Url
    api_key: Secret | None = None
    headers: dict[_HeaderName, Text] = {}
    query: dict[Name, Text] = {}
    timeouts: Timeouts = Timeouts()


class AzureEntry(OpenAIEntry):
    """Azure OpenAI: a request has the header ``api-key``, the deployment in its path, and the API version."""

    kind: Literal["azure"] = "azure"  # type: ignore[assignment]  # the same protocol, another kind
    api_version: Name


class TritonEntry(_Entry):
    """A Triton Inference Server."""

    kind: Literal["triton"] = "triton"
    url: Target
    tls: bool = False
    ca_file: ExistingFile | None = None
    api_key: Secret | None = None
    timeouts: Timeouts = Timeouts()


class ExtractiveEntry(_Entry):
    """The extractive model, in this process."""

    kind: Literal["extractive"] = "extractive"


ServerEntry = Annotated[OpenAIEntry | AzureEntry | TritonEntry | ExtractiveEntry, Field(discriminator="kind")]


class DeploymentEntry(_Entry):
    """A model on a server.

    Attributes:
        model: The name of the model on the server; empty: the public name.
        weight: The share of requests within the tier.
        tier: The deployments of the lowest tier are used first.
        max_concurrency: The maximum number of concurrent answers.
        queue: The maximum number of requests that wait for a slot.
        headers: Headers in addition to the server's headers.
        version: The version of the model; only for Triton.
        answer_tokens: The maximum number of tokens of an answer if the request sets no limit; only for Triton.
    """

    server: Name
    model: str = ""
    weight: float = Field(1.0, gt=0, le=1_000_000, allow_inf_nan=False)
    tier: int = Field(1, ge=1)
    max_concurrency: int = Field(512, ge=1)
    queue: int = Field(512, ge=0)
    headers: dict[_HeaderName, Text] = {}
    version: str = ""
    answer_tokens: int = Field(1024, ge=1)


class ModelEntry(_Entry):
    """A model from the callers' point of view.

    Attributes:
        context_window: The context window in tokens; None: as its servers report.
        tokenizer: The tokenizer, as in `generator.tokenizers.TokenizerSpec`.
        chat_template: The template that formats the messages; empty: the tokenizer's template.
        pictures: The model accepts pictures among the parts of a message.
        tools: The model calls the tools that a request offers.
        reasoning: The name of the message member that carries the model's earlier reasoning; empty: the servers
            accept no such member.
    """

    name: Name
    context_window: int | None = Field(None, ge=1)
    tokenizer: FileOrText = ""
    chat_template: FileOrText = ""
    pictures: bool = False
    tools: bool = False
    reasoning: Literal["", "reasoning", "reasoning_content"] = ""
    deployments: tuple[DeploymentEntry, ...] = Field(min_length=1)


class RetriesEntry(_Entry):
    """The maximum number of retries of one request, and the seconds within which a retry may begin."""

    most: int = Field(2, ge=0, le=10)
    within: float = Field(10.0, ge=0, le=3600)


class CircuitEntry(_Entry):
    """The number of consecutive failures that opens the circuit, and the seconds that the circuit stays open."""

    failures: int = Field(5, ge=1)
    seconds: Seconds = 10.0


class ModelsFile(_Entry):
    """The whole file; the first model is the default."""

    servers: dict[Name, ServerEntry]
    models: tuple[ModelEntry, ...] = Field(min_length=1)
    retries: RetriesEntry = RetriesEntry()
    circuit: CircuitEntry = CircuitEntry()
