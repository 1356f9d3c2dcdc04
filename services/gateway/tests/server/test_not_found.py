import pytest
from gateway.server.not_found import nothing_at


@pytest.mark.parametrize("path", ["/chat/completions", "/harbour/embeddings", "/models"])
def test_a_base_url_without_v1_is_explained(path: str) -> None:
    """An OpenAI client whose base URL lacks `/v1` learns that from the error."""
    assert (
        nothing_at({"path": path}).message
        == f"There is nothing at {path}. The base URL of an OpenAI client ends in /v1."
    )


@pytest.mark.parametrize("path", ["/v1/models/other/models", "/v1/images/generations", "/nowhere"])
def test_other_paths_are_only_named(path: str) -> None:
    """The message names the path."""
    assert nothing_at({"path": path}).message == f"There is nothing at {path}."
