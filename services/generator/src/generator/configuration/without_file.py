"""The configuration without a file: the extractive model, and models of one OpenAI-compatible server."""

from pydantic import SecretStr
from servicekit.errors import InvalidRequest

from generator.configuration.adapters import load_adapters
from generator.configuration.models_file import Configuration, tokenizer_spec
from generator.configuration.schema import (
    DeploymentEntry,
    ExtractiveEntry,
    ModelEntry,
    ModelsFile,
    OpenAIEntry,
    ServerEntry,
)
from generator.tokenizers import counter

_EXTRACTIVE = "extractive"
_OPENAI = "openai"


def simple_configuration(
    *,
    base_url: str | None = None,
    api_key: SecretStr | None = None,
    names: list[tuple[str, str]] | None = None,
    context_window: int | None = None,
    pictures: bool = False,
    tools: bool = False,
    default: str = "",
) -> Configuration:
    """Return the configuration that the settings describe.

    Args:
        base_url: The server's base URL; None: no server.
        api_key: The key for the server.
        names: The public name of each model, and its name on the server.
        context_window: The context window of these models; None: as the server reports.
        pictures: Whether these models accept pictures.
        tools: Whether these models call tools.
        default: Name of the default model; empty: the extractive model.

    Raises:
        InvalidRequest: Models are named without a server, a public name is ``extractive``, or the default model
            does not exist.
    """
    servers: dict[str, ServerEntry] = {_EXTRACTIVE: ExtractiveEntry()}
    models = [ModelEntry(name=_EXTRACTIVE, deployments=(DeploymentEntry(server=_EXTRACTIVE),))]
    if base_url is not None:
        servers[_OPENAI] = OpenAIEntry(url=base_url, api_key=api_key)
        models += [
            ModelEntry(
                name=public,
                context_window=context_window,
                pictures=pictures,
                tools=tools,
                deployments=(DeploymentEntry(server=_OPENAI, model=name),),
            )
            for public, name in names or ()
        ]
    elif names:
        raise InvalidRequest("CAUSEWAY_OPENAI_MODELS needs CAUSEWAY_OPENAI_BASE_URL.", field="openai_base_url")
    public_names = sorted(model.name for model in models)
    if len(set(public_names)) < len(public_names):
        raise InvalidRequest(
            "CAUSEWAY_OPENAI_MODELS: the name 'extractive' belongs to the built-in model; use another public name.",
            field="openai_models",
        )
    if default and default not in public_names:
        raise InvalidRequest(
            f"CAUSEWAY_MODEL: there is no model '{default}'; use one of: {', '.join(public_names)}.", field="model"
        )
    file = ModelsFile(servers=servers, models=tuple(models))
    load_adapters(servers.values())
    return Configuration(file, default, {model.name: counter(tokenizer_spec(file, model)) for model in models})
