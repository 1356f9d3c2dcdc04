from pathlib import Path

import pytest
from pydantic import Field, ValidationError
from servicekit.setting_names import NAMES
from servicekit.settings import ServiceSettings, unknown_variables


class Settings(ServiceSettings):
    book_port: int = Field(1, description="A port.")
    book_file: Path | None = Field(None, description="A file.")
    shelf: Path = Field(Path("shelf"), description="A directory.")
    title: str = Field("none", description="A text.")


def test_an_empty_path_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path has its default if its variable has an empty value. A text may be empty."""
    monkeypatch.setenv("CAUSEWAY_BOOK_FILE", "")
    monkeypatch.setenv("CAUSEWAY_SHELF", "")
    monkeypatch.setenv("CAUSEWAY_TITLE", "")
    settings = Settings()
    assert (settings.book_file, settings.shelf, settings.title) == (None, Path("shelf"), "")
    monkeypatch.setenv("CAUSEWAY_BOOK_FILE", "book.yaml")
    assert Settings().book_file == Path("book.yaml")


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e999"])
def test_a_number_must_be_finite(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """Infinity and NaN are refused, also where a setting has no maximum."""
    monkeypatch.setenv("CAUSEWAY_SHUTDOWN_GRACE", value)
    with pytest.raises(ValidationError, match="finite number"):
        Settings()


def test_every_shared_setting_is_described() -> None:
    """Every setting that all services have in common has a description."""
    assert [name for name, field in ServiceSettings.model_fields.items() if not field.description] == []


def test_the_default_listens_on_loopback_only() -> None:
    """By default, other machines cannot reach a service."""
    assert ServiceSettings.model_fields["host"].default == "127.0.0.1"


@pytest.mark.parametrize("level", ["DEBUG", "info", "Warning", "ERROR"])
def test_levels_in_any_case(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """A log level is accepted in upper, lower and mixed case."""
    monkeypatch.setenv("CAUSEWAY_LOG_LEVEL", level)
    assert Settings().log_level == level


def test_an_unknown_variable_is_found() -> None:
    """A misspelled variable is found, with the nearest setting of any service, or None if no name is similar."""
    misspelled = ["CAUSEWAY_AUHT", "CAUSEWAY_MAX_REQUEST", "causeway_retriever_portt", "CAUSEWAY_QQQQ"]
    assert dict(unknown_variables(misspelled)) == {
        "CAUSEWAY_AUHT": "CAUSEWAY_AUTH",
        "CAUSEWAY_MAX_REQUEST": "CAUSEWAY_MAX_REQUESTS",
        "causeway_retriever_portt": "CAUSEWAY_RETRIEVER_PORT",
        "CAUSEWAY_QQQQ": None,
    }


def test_variables_of_others_are_known() -> None:
    """The settings of all services, in any case, and the variables of clients, tests and Kubernetes are known."""
    kubernetes = ["CAUSEWAY_SERVICE_HOST", "CAUSEWAY_GATEWAY_PORT_8080_TCP_ADDR", "CAUSEWAY_PORT"]
    clients = ["CAUSEWAY_API_KEY", "CAUSEWAY_E2E_URL", "CAUSEWAY_RESPONSE_ROUNDS", "PATH"]
    assert not list(unknown_variables([*NAMES, "causeway_host", *kubernetes, *clients]))
