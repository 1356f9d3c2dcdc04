"""The address of an OpenAI-compatible server, and the parameters of every request to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address with its parameters.

    Attributes:
        base_url: The base of the paths. Requests keep the query of this URL.
        bearer: The key for ``Authorization: Bearer``; None: no such header.
        chat_path: The path of chat completions; the name of the model on the server replaces ``{model}``.
        text_path: The path of text completions, in the same format.
        models_path: The path of the list of models.
        headers: The headers of every request.
        query: The query parameters of every request.
    """

    base_url: str
    bearer: SecretStr | None = None
    chat_path: str = "/chat/completions"
    text_path: str = "/completions"
    models_path: str = "/models"
    headers: Mapping[str, SecretStr] = field(default_factory=dict)
    query: Mapping[str, SecretStr] = field(default_factory=dict)

    @classmethod
    def azure(
        cls,
        url: str,
        version: str,
        key: SecretStr | None,
        headers: Mapping[str, SecretStr],
        query: Mapping[str, SecretStr],
    ) -> "Endpoint":
        """Return the endpoint of Azure OpenAI (https://learn.microsoft.com/azure/ai-foundry/openai/reference)."""
        return cls(
            url,
            chat_path="/openai/deployments/{model}/chat/completions",
            text_path="/openai/deployments/{model}/completions",
            models_path="/openai/models",
            headers={**({} if key is None else {"api-key": key}), **headers},
            query={**query, "api-version": SecretStr(version)},
        )

    def completions_path(self, model: str, *, plain: bool = False) -> str:
        """Return the path of a model's chat completions, or of its text completions if ``plain`` is true."""
        path = self.text_path if plain else self.chat_path
        return path.replace("{model}", quote(model, safe=""))
