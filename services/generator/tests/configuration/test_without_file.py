"""The configuration without a file."""

import pytest
from generator.configuration.without_file import simple_configuration
from pydantic import SecretStr
from servicekit.errors import InvalidRequest


def test_without_settings_there_is_only_the_extractive_model() -> None:
    """Without settings, there is only the extractive model, with its own tokenizer."""
    configuration = simple_configuration()
    assert [model.name for model in configuration.file.models] == ["extractive"]
    assert configuration.counters["extractive"].count("one two") == 2


def test_each_model_of_the_server_has_a_deployment() -> None:
    """Each configured model of the server has a deployment with the server's name, the window and a tokenizer."""
    configuration = simple_configuration(
        base_url="http://127.0.0.1:8000/v1",
        api_key=SecretStr("s3cret"),
        names=[("big", "gpt-4o"), ("small", "llm")],
        context_window=4096,
        default="small",
    )
    assert [
        (model.name, model.context_window, model.deployments[0].server, model.deployments[0].model)
        for model in configuration.file.models
    ] == [
        ("extractive", None, "extractive", ""),
        ("big", 4096, "openai", "gpt-4o"),
        ("small", 4096, "openai", "llm"),
    ]
    assert configuration.default == "small"
    assert [configuration.counters[name].exact for name in ("big", "small")] == [True, False]
    assert "s3cret" not in repr(configuration)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"names": [("a", "a")]}, "CAUSEWAY_OPENAI_MODELS needs CAUSEWAY_OPENAI_BASE_URL"),
        ({"default": "unknown"}, "there is no model 'unknown'; use one of: extractive"),
        (
            {"base_url": "http://a", "names": [("extractive", "a")]},
            "the name 'extractive' belongs to the built-in model",
        ),
    ],
)
def test_contradicting_settings_are_refused(members: dict[str, object], message: str) -> None:
    """Contradicting settings are refused, and the error names them."""
    with pytest.raises(InvalidRequest, match=message):
        simple_configuration(**members)  # type: ignore[arg-type]  # as parametrized
