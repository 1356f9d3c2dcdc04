"""Settings from the environment."""

import pytest
from generator.settings import Settings
from pydantic import ValidationError


def test_a_model_may_have_another_name_on_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model has its public name, and may have another one at the server. Spaces are ignored."""
    monkeypatch.setenv("CAUSEWAY_OPENAI_MODELS", " llama3:8b , small = org/model-7b=q4,")
    assert Settings().openai_model_names() == [("llama3:8b", "llama3:8b"), ("small", "org/model-7b=q4")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_MODELS", "=a"),
        ("OPENAI_MODELS", "a="),
        ("OPENAI_MODELS", "a,b=c,a=d"),
        ("OPENAI_BASE_URL", "localhost:8000"),
        ("OPENAI_BASE_URL", "http://user:key@host/v1"),
        ("OPENAI_API_KEY", "s3cret\n"),
    ],
)
def test_wrong_settings_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """A wrong setting is refused by name."""
    monkeypatch.setenv(f"CAUSEWAY_{name}", value)
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert caught.value.errors()[0]["loc"] == (name.lower(),)


def test_the_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """No representation of the settings contains the key."""
    monkeypatch.setenv("CAUSEWAY_OPENAI_API_KEY", "s3cret")
    settings = Settings()
    assert "s3cret" not in repr(settings) + str(settings) + settings.model_dump_json()
