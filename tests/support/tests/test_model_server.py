"""The model server for tests, with a plain HTTP client."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator

import httpx
import pytest
from causeway_testing.model_answers import DONE, FAULTS, STREAM, Answer, completion, refusal, stream
from causeway_testing.model_server import ModelServer
from causeway_testing.servers import eventually


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer.started(tokens=2) as running:
        yield running


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=5, trust_env=False) as new_client:
        yield new_client


def payloads(body: bytes) -> list[bytes]:
    return [line.removeprefix(b"data: ") for line in body.split(b"\n") if line]


async def test_a_request_is_recorded_unchanged(server: ModelServer, client: httpx.AsyncClient) -> None:
    """The record has the method, the path, the headers and the exact body. Answers are counted and timed."""
    body = b'{ "x":1 ,"y":"\xc3\xa9"}'
    answer = await client.post(f"{server.url}/chat/completions", content=body, headers={"X-Own": "a: b"})
    (request,) = server.requests
    assert (request.method, request.path, request.body) == ("POST", "/v1/chat/completions", body)
    assert request.headers["x-own"] == "a: b"
    assert request.json()["x"] == 1
    assert request.written > len(answer.content)
    assert request.finished_at is not None
    assert request.closed_at is None


async def test_embeddings(server: ModelServer, client: httpx.AsyncClient) -> None:
    """Each text gets a vector of the requested length from its words. It does not use an answer of the script."""
    server.script(refusal(500, "for a chat"))
    url = f"{server.url}/embeddings"
    body = {"model": "m", "input": ["The ferry leaves.", "the FERRY, leaves", "a bridge"], "dimensions": 512}
    data = (await client.post(url, json=body)).json()["data"]
    first, same, other = (each["embedding"] for each in data)
    assert [each["index"] for each in data] == [0, 1, 2]
    assert (len(first), first, sum(map(float.__mul__, first, other))) == (512, same, 0.0)
    assert len((await client.post(url, json={"input": ["x"]})).json()["data"][0]["embedding"]) == 256
    assert (await client.post(url, json={"model": "fault-429", "input": ["x"]})).status_code == 429
    assert (await client.post(f"{server.url}/chat/completions", json={})).status_code == 500


async def test_without_a_script_all_answers_have_the_same_words(
    server: ModelServer, client: httpx.AsyncClient
) -> None:
    """Without a script, streamed and unary answers have the same words, and the usage on request."""
    url = f"{server.url}/chat/completions"
    whole = (await client.post(url, json={})).json()
    assert whole["choices"][0]["message"]["content"] == "word0 word1 "
    assert whole["usage"]["completion_tokens"] == 2
    plain = payloads((await client.post(url, json={"stream": True})).content)
    counted = payloads(
        (await client.post(url, json={"stream": True, "stream_options": {"include_usage": True}})).content
    )
    assert plain[-1] == counted[-1] == DONE.strip().removeprefix(b"data: ")
    text = [json.loads(each)["choices"][0]["delta"].get("content", "") for each in plain[:-1]]
    assert "".join(text) == "word0 word1 "
    assert json.loads(counted[-2])["usage"]["completion_tokens"] == 2


async def test_scripted_answers_come_first_and_in_order(server: ModelServer, client: httpx.AsyncClient) -> None:
    """Scripted answers are used first and in order, and then the default answers."""
    url = f"{server.url}/chat/completions"
    server.script(refusal(429, "slow down", retry_after=3), completion("second"))
    first = await client.post(url, json={})
    assert (first.status_code, first.headers["retry-after"]) == (429, "3")
    assert first.json()["error"]["message"] == "slow down"
    assert (await client.post(url, json={})).json()["choices"][0]["message"]["content"] == "second"
    assert (await client.post(url, json={})).json()["choices"][0]["message"]["content"] == "word0 word1 "


async def test_a_paced_stream_comes_piece_by_piece(server: ModelServer, client: httpx.AsyncClient) -> None:
    """A paced stream sends each token at its time, and a burst sends one chunk."""
    server.script(stream(["a"] * 5, pace=0.02), stream(["a"] * 5, burst=True))
    begin = time.monotonic()
    async with client.stream("POST", f"{server.url}/chat/completions", json={}) as answer:
        assert b"[DONE]" in b"".join([piece async for piece in answer.aiter_raw()])
    assert time.monotonic() - begin >= 0.1
    async with client.stream("POST", f"{server.url}/chat/completions", json={}) as answer:
        [piece] = [piece async for piece in answer.aiter_raw()]
    assert piece.endswith(b"[DONE]\n\n")


async def test_the_time_at_which_a_client_disconnects_is_recorded(
    server: ModelServer, client: httpx.AsyncClient
) -> None:
    """The record has the time at which a client disconnects, before the first byte and later."""
    for answer in (FAULTS["fault-hang-before"](), FAULTS["fault-hang-mid"]()):
        server.script(answer)
        begin = time.monotonic()
        with contextlib.suppress(httpx.ReadTimeout):
            await client.post(f"{server.url}/chat/completions", json={}, timeout=0.5)
        await eventually(lambda: server.requests[-1].closed_at is not None)
        closed = server.requests[-1].closed_at
        assert closed is not None
        assert begin + 0.4 < closed <= time.monotonic()
        assert server.requests[-1].finished_at is None


@pytest.mark.parametrize("name", ["fault-close-before", "fault-close-mid", "fault-reset-mid", "fault-half-line"])
async def test_faults_break_the_connection(server: ModelServer, client: httpx.AsyncClient, name: str) -> None:
    """The model's name selects a fault. The record shows that the client did not disconnect."""
    with pytest.raises(httpx.TransportError):
        await client.post(f"{server.url}/chat/completions", json={"model": name})
    assert server.requests[0].closed_at is None


async def test_a_client_that_does_not_read_stops_the_server(server: ModelServer) -> None:
    """The server writes only as many bytes as the buffers of the connection accept."""
    server.script(Answer(tuple(b"x" * 100_000 for _ in range(1000)), content_type=STREAM))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
    await reader.read(1000)
    before = -1
    while server.requests[0].written != before:
        before = server.requests[0].written
        await asyncio.sleep(0.2)
    assert before < 20_000_000
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_connection_serves_requests_one_after_the_other(server: ModelServer) -> None:
    """A connection answers its requests in order, however the bytes are split."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    request = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    server.script(completion("one"), completion("two"))
    for piece in (request[:10], request[10:30], request[30:] + request[:5], request[5:]):
        writer.write(piece)
        await asyncio.sleep(0.01)
    read = b""
    while read.count(b"HTTP/1.1 200") < 2 or b'"two"' not in read:
        read += await asyncio.wait_for(reader.read(4096), 60)
    assert read.index(b'"one"') < read.index(b'"two"')
    assert [each.connection for each in server.requests] == [1, 1]
    writer.close()
    await writer.wait_closed()


async def test_the_server_runs_as_a_process() -> None:
    """The process prints its URL, and returns its models and its recorded requests over HTTP."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "causeway_testing.model_server", "--tokens", "1", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    url = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.post(f"{url}/chat/completions", json={"a": 1})
        assert [model["id"] for model in (await client.get(f"{url}/models")).json()["data"]] == ["stub"]
        (request,) = (await client.get(f"{url.removesuffix('/v1')}/requests")).json()
        assert json.loads(request["body"]) == {"a": 1}
        assert (await client.get(f"{url}/nothing")).status_code == 404
        assert (await client.post(f"{url}/chat/completions", content=b"no json")).status_code == 400
    process.kill()
    await process.wait()
