"""Where a server that speaks the OpenAI API is, and what it wants to be told with every request."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address with all that goes along.

    Attributes:
        base_url: What the paths are below; its query stays.
        bearer: The key that goes as ``Authorization: Bearer``, if one does.
        chat_path: Of chat completions; ``{model}`` stands for the server's name of the model.
        text_path: Of text completions, likewise.
        models_path: Of the list of models.
        headers: Sent with every request.
        query: Parameters of every URL.
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
        """Azure OpenAI: https://learn.microsoft.com/azure/ai-foundry/openai/reference (data plane inference)."""
        return cls(
            url,
            chat_path="/openai/deployments/{model}/chat/completions",
            text_path="/openai/deployments/{model}/completions",
            models_path="/openai/models",
            headers={**({} if key is None else {"api-key": key}), **headers},
            query={**query, "api-version": SecretStr(version)},
        )

    def answers(self, model: str, *, plain: bool = False) -> str:
        """The path of a model's chat completions; ``plain``: of its text completions."""
        path = self.text_path if plain else self.chat_path
        return path.replace("{model}", quote(model, safe=""))
