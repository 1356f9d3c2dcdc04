"""Reads ``models.yaml``: validates the whole file, and resolves secrets and tokenizers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr
from servicekit.yaml_file import Document

from generator.configuration.adapters import load_adapters
from generator.configuration.schema import (
    DeploymentEntry,
    ModelEntry,
    ModelsFile,
    OpenAIEntry,
    ServerEntry,
    TritonEntry,
)
from generator.ports import TokenCounter
from generator.tokenizers import TokenizerSpec, counter
from generator.tokenizers.templates import load_template

# Keys of a model that only deployments on servers with the OpenAI API support.
_OPENAI_API_KEYS = ("pictures", "tools", "reasoning")


@dataclass(frozen=True)
class Configuration:
    """The configuration to serve.

    Attributes:
        file: Servers and models.
        default: Name of the default model; empty: the first one.
        counters: The token counter of each model, by its public name.
    """

    file: ModelsFile
    default: str = ""
    counters: Mapping[str, TokenCounter] = field(default_factory=dict)


class Reader:
    """Reads the file's content after each change; one thread at a time may call the reader.

    Args:
        path: The file. Relative paths in it are resolved against its directory.
        environ: The environment variables that the file may reference.
        default: Name of the default model; empty: the first one.
    """

    def __init__(self, path: Path, environ: Mapping[str, str], *, default: str = "") -> None:
        self._path = path
        self._environ = environ
        self._default = default
        # A tokenizer takes seconds and many megabytes to load, so an unchanged one is reused.
        self._counters: dict[TokenizerSpec, TokenCounter] = {}

    def __call__(self, raw: bytes) -> Configuration:
        """Return the configuration that the file's content describes.

        Raises:
            ValueError: The content is invalid; the message names the file, the line and the key.
        """
        document = Document(raw, str(self._path))
        file = document.validated(ModelsFile, {"environ": self._environ, "folder": self._path.parent})
        names: set[str] = set()
        for index, model in enumerate(file.models):
            if model.name in names:
                raise document.wrong(("models", index, "name"), f"there are two models '{model.name}'")
            names.add(model.name)
            self._check(document, file, index, model)
            self._check_template(document, index, model)
        if self._default and self._default not in names:
            raise document.wrong(
                ("models",), f"there is no model '{self._default}', which CAUSEWAY_MODEL names as the default"
            )
        load_adapters(file.servers.values())
        return Configuration(file, self._default, self._make_counters(document, file))

    def _check_template(self, document: Document, index: int, model: ModelEntry) -> None:
        try:
            load_template(model.chat_template)
        except (OSError, ValueError) as error:
            raise document.wrong(("models", index, "chat_template"), f"model '{model.name}': {error}") from error

    def _check(self, document: Document, file: ModelsFile, index: int, model: ModelEntry) -> None:
        seen: set[tuple[str, str]] = set()
        for number, entry in enumerate(model.deployments):
            key = ("models", index, "deployments", number)
            server = file.servers.get(entry.server)
            if server is None:
                known = ", ".join(sorted(file.servers))
                raise document.wrong((*key, "server"), f"there is no server '{entry.server}'; use one of: {known}")
            if (entry.server, entry.model) in seen:
                raise document.wrong(
                    key, f"another deployment of this model uses '{entry.model or model.name}' on '{entry.server}'"
                )
            seen.add((entry.server, entry.model))
            for name in _unsupported_keys(server, entry):
                raise document.wrong((*key, name), f"servers of kind {server.kind} do not support this key")
        if any(isinstance(file.servers[entry.server], OpenAIEntry) for entry in model.deployments):
            return
        for name in _OPENAI_API_KEYS:
            if getattr(model, name):
                raise document.wrong(
                    ("models", index, name),
                    f"model '{model.name}' has no deployment on a server of kind openai or azure, and only these "
                    "support this key; remove the key, or add such a deployment",
                )

    def _make_counters(self, document: Document, file: ModelsFile) -> dict[str, TokenCounter]:
        specs = {model.name: tokenizer_spec(file, model) for model in file.models}
        counters: dict[TokenizerSpec, TokenCounter] = {}
        for index, (name, spec) in enumerate(specs.items()):
            try:
                counters[spec] = self._counters.get(spec) or counters.get(spec) or counter(spec)
            except (OSError, ValueError) as error:
                raise document.wrong(("models", index, "tokenizer"), f"model '{name}': {error}") from error
        self._counters = counters
        return {name: counters[spec] for name, spec in specs.items()}


def tokenizer_spec(file: ModelsFile, model: ModelEntry) -> TokenizerSpec:
    """Return the tokenizer of a model: the configured tokenizer, else the tokenizer for its first deployment."""
    first = model.deployments[0]
    server = file.servers[first.server]
    if not model.tokenizer and server.kind == "extractive":
        return TokenizerSpec("words")
    key: SecretStr | None = None
    _, plus, address = model.tokenizer.partition("+")
    # Send the key only to the server that it belongs to.
    if plus and isinstance(server, OpenAIEntry) and f"{server.url}/".startswith(f"{address.rstrip('/')}/"):
        key = server.api_key
    return TokenizerSpec(model.tokenizer, first.model or model.name, model.chat_template, key)


def _unsupported_keys(server: ServerEntry, entry: DeploymentEntry) -> list[str]:
    """Return keys that have no meaning for a server of this kind."""
    unsupported = []
    if not isinstance(server, TritonEntry):
        unsupported += ["version", "answer_tokens"]
    if not isinstance(server, OpenAIEntry):
        unsupported += ["headers"]
    return [name for name in unsupported if name in entry.model_fields_set]
