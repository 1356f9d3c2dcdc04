"""The address of an OpenAI-compatible server, and the parameters of every request to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL, the paths, the key, the headers and the query parameters of one server.

    Attributes:
        base_url: The URL to which the paths are appended. Each request also sends the query of this URL.
        bearer: The key in the header ``Authorization: Bearer``; None: requests do not have this header.
        chat_path: The path of chat completions; the name of the model on the server replaces ``{model}``.
        text_path: The path of text completions, with the same placeholder.
        models_path: The path of the list of models.
        headers: Headers that every request sends.
        query: Query parameters that every request sends, in addition to the query of ``base_url``.
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
        """Return the endpoint of an Azure OpenAI resource.

        https://learn.microsoft.com/azure/ai-foundry/openai/reference

        Args:
            url: The URL of the resource.
            version: The API version, which overrides ``api-version`` in ``query``.
            key: The API key; None: requests do not have the header ``api-key``.
            headers: Headers that every request sends. They override the header ``api-key``.
            query: Query parameters that every request sends.
        """
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
