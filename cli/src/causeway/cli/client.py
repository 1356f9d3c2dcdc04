"""The client of the platform's public HTTP API."""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from causeway.cli.answers import Answer, Job, Readiness, error_message
from causeway.cli.errors import CommandError, RequestRefused, Unreachable, UsageError
from servicekit import http_headers

_TIMEOUT = httpx.Timeout(connect=5, read=120, write=60, pool=None)
_PROBE_TIMEOUT = httpx.Timeout(10, connect=2)
_MAX_ATTEMPTS = 6
_FIRST_WAIT_SECONDS = 0.5
_MAX_WAIT_SECONDS = 60.0
_MAX_PORT = 65535
_MAX_SHOWN = 200
_BUSY_STATUSES = frozenset({429, 503})
_KEY_HINT = "The commands read a key from CAUSEWAY_API_KEY; `causeway keys create --name me` creates a key."


class Client:
    """A client of a gateway, and an async context manager.

    A method raises `Unreachable` if no response arrives, `RequestRefused` for an error response, and `CommandError`
    for a response that cannot be parsed. `connect` ignores the status of the response.

    Args:
        url: The gateway's URL, without a path.
        api_key: The key for every request; empty: no key.
        first_wait: Seconds before the first retry. The wait doubles with each further retry.

    Raises:
        UsageError: The URL or the key is invalid.
    """

    def __init__(self, url: str, *, api_key: str = "", first_wait: float = _FIRST_WAIT_SECONDS) -> None:
        self.url = url.rstrip("/")
        self._first_wait = first_wait
        self._answered = False
        host = gateway_host(self.url)
        check_api_key(api_key)
        self._http = httpx.AsyncClient(
            base_url=self.url,
            timeout=_TIMEOUT,
            headers={"authorization": f"Bearer {api_key}"} if api_key else None,
            # Requests to this machine do not use a proxy from the environment.
            trust_env=host not in {"127.0.0.1", "::1", "localhost"},
        )

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def readiness(self) -> Readiness:
        """Return whether the platform is ready, with the states of its services.

        Raises:
            Unreachable: No response arrives, or the server is not a gateway.
        """
        with self._connection_errors():
            response = await self._http.get("/readyz?verbose", timeout=_PROBE_TIMEOUT)
        try:
            return Readiness.of(response.status_code == 200, response.json())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{self.url} is not a Causeway gateway (HTTP {response.status_code} for /readyz)"
            raise Unreachable(message) from error

    async def call(
        self, method: str, path: str, *, query: Mapping[str, str | int] | None = None, body: object = None
    ) -> Any:
        """Return the JSON response of a route; retry under the conditions of `upload`."""
        response = await self._send_with_retries(lambda: self._http.request(method, path, params=query, json=body))
        with _parsing(response):
            return response.json()

    async def upload(self, index: str, name: str, path: Path, *, pictures: bool = False) -> Job:
        """Upload a file; return its job.

        The method sends the request up to six times while the platform is busy, if the connection breaks, or if the
        response is late. It does not retry if the platform requests a wait of more than a minute. It also does not
        retry if no server accepts a connection and none has answered before. The platform ingests a repeated file
        only once.

        Args:
            index: The index.
            name: The name of the document.
            path: The path of the file.
            pictures: Whether to store pictures of the pages.

        Raises:
            OSError: The file cannot be read.
        """

        async def send() -> httpx.Response:
            with path.open("rb") as file:
                form = {"index": index, "pictures": str(pictures).lower()}
                return await self._http.post("/documents", data=form, files={"file": (name, file)})

        response = await self._send_with_retries(send)
        with _parsing(response):
            return Job.of(response.json()["jobs"][0])

    async def ask(self, question: str, overrides: Mapping[str, object]) -> Answer:
        """Send a question to ``/2024-04/chat``; return the answer. The arguments are those of `ask_streaming`."""
        await self.connect()
        start = time.perf_counter()
        with self._connection_errors():
            response = await self._http.post("/2024-04/chat", json=_chat_body(question, overrides))
        with _parsing(_require_success(response)):
            body = response.json()
            answer = Answer(text=str(body["message"]["content"]), trace_id=_trace_id(response))
            answer.add_context(body)
        answer.total_ms = (time.perf_counter() - start) * 1000
        return answer

    async def ask_streaming(
        self, question: str, overrides: Mapping[str, object], on_text: Callable[[str], None]
    ) -> Answer:
        """Send a question to ``/2024-04/chat/stream``; return the answer after its last byte.

        Args:
            question: The question.
            overrides: Members of ``context.overrides`` in the request: ``index``, ``top``, ``retrieval_mode``.
            on_text: Called with each piece of the answer.
        """
        answer = Answer()
        await self.connect()
        start = time.perf_counter()
        body = _chat_body(question, overrides)
        with self._connection_errors():
            async with self._http.stream("POST", "/2024-04/chat/stream", json=body) as response:
                answer.trace_id = _trace_id(response)
                if response.is_error:
                    await response.aread()
                async for line in _require_success(response).aiter_lines():
                    text = _add_line(answer, line)
                    if not text:
                        continue
                    if answer.first_ms is None:
                        answer.first_ms = (time.perf_counter() - start) * 1000
                    on_text(text)
        answer.total_ms = (time.perf_counter() - start) * 1000
        return answer

    async def connect(self) -> None:
        """Send a request, so that later durations include neither the connection nor the import of modules."""
        with self._connection_errors():
            await self._http.get("/healthz", timeout=_PROBE_TIMEOUT)

    async def _send_with_retries(self, send: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
        """Send a request; retry under the conditions of `upload`.

        If no server accepts a connection and none has answered before, the address is wrong, or the platform does
        not run.
        """
        wait = self._first_wait
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            retry_after: float | None = None
            try:
                with self._connection_errors():
                    response = await send()
            except Unreachable as error:
                no_server = not self._answered and isinstance(error.__cause__, httpx.ConnectError)
                if attempt == _MAX_ATTEMPTS or no_server:
                    raise
            else:
                self._answered = True
                retry_after = http_headers.retry_after(response.headers)
                if (
                    response.status_code not in _BUSY_STATUSES
                    or attempt == _MAX_ATTEMPTS
                    or (retry_after or 0) > _MAX_WAIT_SECONDS
                ):
                    return _require_success(response)
            await asyncio.sleep(wait if retry_after is None else retry_after)
            wait = min(wait * 2, _MAX_WAIT_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def _connection_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise Unreachable(f"no server answers at {self.url}; `causeway up` starts a stack") from error
        except httpx.TimeoutException as error:
            raise Unreachable(f"{self.url} does not answer in time ({type(error).__name__})") from error
        except httpx.RequestError as error:
            cause = str(error) or type(error).__name__
            raise Unreachable(f"the connection to {self.url} broke: {cause}") from error
        except httpx.InvalidURL as error:
            raise UsageError(f"a value of the command line is too long for a request: {error}") from error


def gateway_host(url: str) -> str:
    """Return the host of a gateway's URL.

    Raises:
        UsageError: The URL is invalid.
    """
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeEncodeError) as error:
        raise UsageError(f"{url[:_MAX_SHOWN]!r} is not a valid URL: {error}") from error
    if not parsed.host or not url.startswith(("http://", "https://")) or parsed.query or parsed.fragment:
        raise UsageError(f"--url must have the form http://127.0.0.1:8080, not {url!r}")
    if parsed.port is not None and parsed.port > _MAX_PORT:
        raise UsageError(f"--url has the port {parsed.port}, but the highest port is {_MAX_PORT}")
    return parsed.host


def check_api_key(api_key: str) -> None:
    """Check that a key can be sent in a header. The message does not contain the key.

    Raises:
        UsageError: The key contains other characters than visible ASCII characters.
    """
    if not all("!" <= character <= "~" for character in api_key):
        raise UsageError(
            "the API key (CAUSEWAY_API_KEY or --api-key) may contain only visible ASCII characters, without spaces "
            "and line breaks"
        )


def _chat_body(question: str, overrides: Mapping[str, object]) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": question}], "context": {"overrides": dict(overrides)}}


def _require_success(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        message = error_message(response.json())
    except ValueError:
        message = ""
    message = message or f"HTTP {response.status_code} {response.reason_phrase}"
    raise RequestRefused(
        f"{message} {_KEY_HINT}" if response.status_code == httpx.codes.UNAUTHORIZED else message,
        status=response.status_code,
        trace_id=_trace_id(response),
    )


def _add_line(answer: Answer, line: str) -> str:
    """Add a line of a stream to the answer; return the text of the line."""
    if not line.strip():
        return ""
    try:
        body = json.loads(line)
        if "error" in body:
            raise RequestRefused(error_message(body) or "the answer is incomplete", trace_id=answer.trace_id)
        answer.add_context(body)
        text = str((body.get("delta") or {}).get("content") or "")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CommandError(f"a line of the answer is invalid: {line[:200]!r}") from error
    answer.text += text
    return text


@contextlib.contextmanager
def _parsing(response: httpx.Response) -> Iterator[None]:
    """Convert a parsing error of a response to a `CommandError`."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CommandError(f"the response of {response.url} is invalid: {response.text[:200]!r}") from error


def _trace_id(response: httpx.Response) -> str:
    return str(response.headers.get("x-trace-id", ""))
