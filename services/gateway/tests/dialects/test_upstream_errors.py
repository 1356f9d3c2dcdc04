from typing import Any

import httpx
import pytest
from gateway.dialects.upstream_errors import client_error, message_of
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    RateLimited,
    Unavailable,
    UpstreamRejected,
    http_status,
)

OPENAI_ERROR = '{"error":{"message":"max_tokens is too large","type":"invalid_request_error"}}'
PATHS = ["/2024-01/chat", "/2024-04/chat", "/2024-04/chat/stream", "/2024-05-29/chat/stream", "/2026-04-10/chat"]


def refusal(status: int, body: str = OPENAI_ERROR, retry_after: float | None = None) -> UpstreamRejected:
    return UpstreamRejected(
        f"The model server refused with status {status}.", status=status, body=body, retry_after=retry_after
    )


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_invalid_request_has_the_model_servers_message(status: int) -> None:
    """The client gets the model server's message, if there is one, and can correct the request."""
    converted = client_error(refusal(status))
    assert type(converted) is InvalidRequest
    assert converted.message == "max_tokens is too large"
    assert client_error(refusal(status, "<html>")).message == f"The model server refused with status {status}."


@pytest.mark.parametrize(
    ("status", "kind", "client_status"),
    [
        *((status, Unavailable, 503) for status in (401, 403, 404, 418, 500, 502, 503)),
        *((status, DeadlineExceeded, 504) for status in (408, 504)),
        (429, RateLimited, 429),
    ],
)
def test_other_refusals_hide_the_model_server(status: int, kind: type[CausewayError], client_status: int) -> None:
    """A wrong key for the model server is not an error of the client. The message has no internal details."""
    error = refusal(status, '{"error":{"message":"Incorrect API key: sk-1"}}')
    converted = client_error(error)
    assert type(converted) is kind
    assert http_status(converted) == client_status
    assert "sk-1" not in converted.message
    assert converted.__cause__ is error
    assert (converted.retry_after is not None) is (client_status in (429, 503))


def test_the_error_has_retry_after() -> None:
    """The error has the model server's Retry-After."""
    assert client_error(refusal(429, retry_after=9)).retry_after == 9
    assert client_error(refusal(503, retry_after=7)).retry_after == 7


def test_other_errors_remain_unchanged() -> None:
    """Another error is returned as the same object."""
    error = Internal()
    assert client_error(error) is error


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (OPENAI_ERROR, "max_tokens is too large"),
        ('{"object":"error","message":"m","code":400}', "m"),
        ('{"error":"m"}', ""),
        ("[1]", ""),
        ("", ""),
        ('{"error":{"message":"\\ud800"}}', ""),
        ('{"message":"m","details":' + "[" * 5000 + "]" * 5000 + "}", ""),
    ],
)
def test_both_formats_of_messages(body: str, message: str) -> None:
    """The message is read from OpenAI's format and from vLLM's older format. Other formats have no message."""
    assert message_of(body) == message


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("status", "client_status", "message", "retry_after"),
    [
        (400, 400, "max_tokens is too large", None),
        (401, 503, "The model server is unavailable. Try again later.", "1"),
        (429, 429, "The model server receives too many requests. Try again later.", "9"),
        (500, 503, "The model server is unavailable. Try again later.", "9"),
    ],
)
async def test_every_stage_translates_refusals(
    client: httpx.AsyncClient,
    fakes: Any,
    path: str,
    status: int,
    client_status: int,
    message: str,
    retry_after: str | None,
) -> None:
    """Before the stream begins, a refusal has an HTTP status and the header Retry-After."""
    fakes.generator.script = [refusal(status, retry_after=9 if status != 401 else None)]
    response = await client.post(path, json={"messages": "When?"})
    assert response.status_code == client_status
    error = response.json()["error"]
    assert (error["message"] if isinstance(error, dict) else error) == message
    assert response.headers.get("retry-after") == (retry_after if client_status != 400 else None)


async def test_openai_clients_get_the_original_refusal(client: httpx.AsyncClient, fakes: Any) -> None:
    """OpenAI's clients get the model server's status and body."""
    fakes.generator.script = [refusal(401)]
    response = await client.post(
        "/v1/chat/completions", json={"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    )
    assert (response.status_code, response.text) == (401, OPENAI_ERROR)
