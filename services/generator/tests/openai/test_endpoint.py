"""The address of a model server."""

from generator.openai.endpoint import Endpoint
from pydantic import SecretStr


def test_only_azures_path_contains_the_deployment() -> None:
    """Only Azure's path has the escaped name of the deployment."""
    plain = Endpoint("http://a/v1")
    assert plain.completions_path("a b/c") == plain.completions_path("") == "/chat/completions"
    assert plain.completions_path("a", plain=True) == "/completions"
    azure = Endpoint.azure("https://a", "v", None, {}, {})
    assert azure.completions_path("a b/c") == "/openai/deployments/a%20b%2Fc/chat/completions"
    assert azure.completions_path("a", plain=True) == "/openai/deployments/a/completions"


def test_azure_gets_its_key_in_its_own_header() -> None:
    """Azure's key is in its own header, which a configured header replaces. No secret is shown."""
    key, other = SecretStr("s3cret-a"), SecretStr("s3cret-b")
    endpoint = Endpoint.azure("https://a", "2024-10-21", key, {}, {"x": other})
    assert (endpoint.bearer, endpoint.headers) == (None, {"api-key": key})
    assert {name: value.get_secret_value() for name, value in endpoint.query.items()} == {
        "x": "s3cret-b",
        "api-version": "2024-10-21",
    }
    assert Endpoint.azure("https://a", "v", key, {"api-key": other}, {}).headers == {"api-key": other}
    assert "s3cret" not in repr(endpoint)
