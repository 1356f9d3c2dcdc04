import pytest
from gateway.server.not_found import no_route_error


@pytest.mark.parametrize("path", ["/chat/completions", "/harbour/embeddings", "/models"])
def test_the_error_explains_a_base_url_without_v1(path: str) -> None:
    """The error for an OpenAI path without `/v1` explains the base URL."""
    assert (
        no_route_error({"path": path}).message
        == f"The path {path} does not exist. The base URL of an OpenAI client ends in /v1."
    )


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/v1/files", "POST /documents"),
        ("/harbour/v1/vector_stores/x/files", "index"),
        ("/v1/threads", "/v1/responses"),
    ],
)
def test_the_error_names_the_replacement_of_a_missing_openai_route(path: str, instead: str) -> None:
    """The error for files, vector stores and assistants says what to use."""
    assert instead in no_route_error({"path": path}).message.removeprefix(f"The path {path} does not exist. ")


@pytest.mark.parametrize("path", ["/v1/models/other/models", "/v1/images/generations", "/nowhere"])
def test_the_error_of_other_paths_names_only_the_path(path: str) -> None:
    """The error for another unknown path names only the path."""
    assert no_route_error({"path": path}).message == f"The path {path} does not exist."
