import pytest
from gateway.identity.credentials import credential_of
from servicekit.errors import Unauthenticated


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer secret")],
        [(b"authorization", b"bearer  secret ")],
        [(b"api-key", b"secret")],
        [(b"authorization", b"secret")],
        [(b"api-key", b"secret"), (b"authorization", b"secret")],
        [(b"api-key", b"secret"), (b"authorization", b"Bearer secret")],
        [(b"x-api-key", b" secret")],
        [(b"host", b"g"), (b"x-api-key", b"secret"), (b"authorization", b"Bearer secret")],
    ],
)
def test_each_header_that_clients_use_is_read(headers: list[tuple[bytes, bytes]]) -> None:
    """A credential is read from any of the headers. The same credential in two headers counts once."""
    assert credential_of(headers) == "secret"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"host", b"g")],
        [(b"authorization", b"")],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Basic c2VjcmV0")],
        [(b"authorization", b"bearer")],
        [(b"authorization", b"Basic secret"), (b"api-key", b"secret")],
        [(b"authorization", b"other"), (b"api-key", b"secret")],
        [(b"api-key", b"")],
        [(b"api-key", b"secret"), (b"authorization", b"Bearer other")],
        [(b"api-key", b"secret"), (b"api-key", b"other")],
    ],
)
def test_missing_or_conflicting_credentials_are_refused(headers: list[tuple[bytes, bytes]]) -> None:
    """A request without a credential, or with two different ones, is refused. The message repeats no credential."""
    with pytest.raises(Unauthenticated) as caught:
        credential_of(headers)
    assert "secret" not in caught.value.message
    assert caught.value.field == "authorization"
