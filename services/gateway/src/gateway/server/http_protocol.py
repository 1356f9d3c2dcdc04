"""The gateway's HTTP/1.1 protocol: uvicorn's protocol with additional checks and limits.

The end of a request determines where the next request begins. Therefore the gateway refuses a request with
ambiguous framing, and closes the connection (RFC 9112, 6.3 and 11.2).
"""

import asyncio
import functools
import re
from dataclasses import dataclass
from typing import Any

import httptools
from servicekit.errors import (
    CausewayError,
    HeadersTooLarge,
    HttpVersionNotSupported,
    InvalidRequest,
    NotSupported,
    TargetTooLong,
    Unavailable,
    http_status,
)
from starlette.types import Message, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from gateway.dialects.problem import problem
from gateway.server.connections import Connections, Place
from gateway.server.middleware import HEALTH
from gateway.server.responses import BREAK_OFF, error_headers

# RFC 9112, 3.2: uri-host [":" port], where uri-host may be empty (RFC 3986, 3.2.2; a zone is not allowed).
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
_FRAMING = (b"content-length", b"transfer-encoding")
_FIRST_REQUEST_SECONDS = 1.0
"""Seconds for which a stopping server waits for the first request of an open connection."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits of request heads (request line and headers), and the time limits of clients.

    Attributes:
        size: The maximum number of bytes of the request line and the headers.
        count: The maximum number of headers.
        seconds: Maximum seconds from the start of the connection, or from the first byte of a later request, to the
            last header. The limit also applies to the rest of a request whose response has ended.
        idle: Maximum seconds from the end of a response to the first byte of the next request.
        pause: Maximum seconds for which the client reads nothing although the server has data to send.
    """

    size: int = 32 * 1024
    count: int = 100
    seconds: float = 30.0
    idle: float = 75.0
    pause: float = 30.0


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits and unambiguous framing.

    uvicorn accepts headers of any size, and treats a request with ``Connection: Upgrade`` as the last one of its
    connection. It waits without a time limit for headers, for the rest of a refused request, and for a client that
    does not read.

    Args:
        limits: The limits.
        connections: The open connections of the process.
        args: The positional arguments of uvicorn's protocol.
        kwargs: The keyword arguments of uvicorn's protocol.
    """

    def __init__(self, limits: HttpLimits, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._connections = connections
        self._place = Place.OPEN
        self._reading_head = self._idle = True
        self._is_complete = self._refused = self._resuming = False
        self._has_request = self._draining = False
        self._piece_bytes = self._parsed_bytes = self._unread_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """Register the connection, and start the timer of the first request."""
        super().connection_made(transport)
        self._place = self._connections.opened(self)
        if self._place is Place.REFUSED:
            self._refused = True
            transport.abort()
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._connections.closed(self)
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def close(self) -> None:
        """Close the connection, which is idle, to make room for another connection."""
        self.transport.close()

    def shutdown(self) -> None:
        """Complete running requests, wait for the first request of a new connection, and close idle connections.

        Clients retry a request if a used connection breaks, but not if a new connection breaks.
        """
        if self._has_request or self._refused:
            super().shutdown()
            return
        self._draining = True
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(_FIRST_REQUEST_SECONDS, self._too_slow)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes. For a request in one piece, which is usual, the checks are a few comparisons."""
        if self._refused:
            return
        if self._idle:
            self._idle = False
            self._connections.busy(self)
        self._piece_bytes = len(data)
        # The parser does not report an incomplete header or trailer, so the bytes are counted here.
        self._parsed_bytes += self._piece_bytes
        self._unset_keepalive_if_required()
        self._feed(data)
        if self.transport.is_closing():
            return
        if self._parsed_bytes > 2 * self._limits.size and not self._is_complete:
            self._refuse(self._too_large())
        elif self._reading_head:
            self._start_head_timer()
        elif not self.cycle.response_complete:
            self._stop_head_timer()

    def _feed(self, data: bytes) -> None:
        """Parse a piece. Ignore a request to upgrade, as RFC 9110, 7.8 allows.

        The parser treats such a request as complete after its head, because another protocol would follow. Here the
        body of the request follows. Therefore the parser gets a second head with the framing of the request.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                framing = [b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING]
                self._resuming = True
                self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))
                self._resuming = False
                data = data[upgrade.args[0] :]
            except httptools.HttpParserError:
                if not self._refused:
                    self._refuse(InvalidRequest("The request is not valid HTTP/1.1."))
                return

    def on_message_begin(self) -> None:
        """Begin a request. It may begin inside the current piece."""
        if self._resuming:
            return
        super().on_message_begin()
        self._reading_head, self._is_complete = True, False
        self._parsed_bytes = self._piece_bytes

    def on_url(self, url: bytes) -> None:
        """Process a piece of the request target."""
        if not self._resuming:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Process a header, without the white space around its value (RFC 9110, 5.5).

        Trailers are ignored (RFC 9110, 6.5), because no route uses them.
        """
        if self._reading_head:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Check the head, and start the application."""
        if self._resuming:
            return
        try:
            self._check_head()
        except CausewayError as error:
            self._refuse(error)
            raise  # stops the parser
        super().on_headers_complete()
        self._has_request = True
        if self._draining:
            self.cycle.keep_alive = False
        if self.scope["http_version"] == "1.0":
            _answer_http_1_0(self.cycle)
        self.scope["extensions"] = {BREAK_OFF: {"close": functools.partial(_close_incomplete, self.cycle)}}
        self._reading_head, self._parsed_bytes = False, 0

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body. The middleware limits bodies."""
        self._parsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request. After the head of a request for an upgrade, the body still follows."""
        if self.parser.should_upgrade():
            return
        self._is_complete = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """End the response. If the request is incomplete, wait a limited time for the rest of it."""
        super().on_response_complete()
        if not self.cycle.response_complete:
            return  # the next request has already begun
        if self._is_complete:
            self._idle = True
            self._connections.idle(self)
        else:
            self._start_head_timer()

    def pause_writing(self) -> None:
        """Start the timer of a client that reads more slowly than the application writes."""
        super().pause_writing()
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(self._limits.pause, self._check_reading)

    def resume_writing(self) -> None:
        """Stop the timer, because the client has read."""
        self._stop_read_timer()
        super().resume_writing()

    def _check_head(self) -> None:
        """Check the size, the framing and the host of a head.

        Raises:
            CausewayError: The head is invalid.
        """
        limits = self._limits
        if len(self.headers) > limits.count or (self._parsed_bytes > limits.size and self._size() > limits.size):
            raise self._too_large()
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise HttpVersionNotSupported(f"HTTP/{version} is not supported. Send HTTP/1.1.")
        if self.parser.get_method() == b"CONNECT":
            raise NotSupported("CONNECT is not supported: this server is not a proxy.")
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and version == "1.1"):
            raise InvalidRequest("A request must have exactly one Host header.", field="host")
        if hosts and not _HOST.fullmatch(hosts[0]):
            raise InvalidRequest(
                "The Host header must be a name or an address, with or without a port.", field="host"
            )
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and version == "1.0":
            raise InvalidRequest("An HTTP/1.0 request must not have Transfer-Encoding.", field="transfer-encoding")
        if codings and codings != [b"chunked"]:
            raise NotSupported("Transfer-Encoding must be exactly 'chunked'.", field="transfer-encoding")
        if self._place is Place.RESERVED and self.url.split(b"?")[0].decode("ascii", "replace") not in HEALTH:
            raise Unavailable("The server has reached its limit of connections. Try again shortly.", retry_after=2)

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _too_large(self) -> CausewayError:
        limits = self._limits
        # Bytes before the first request line, such as empty lines, have no target.
        if len(getattr(self, "url", b"")) > limits.size:
            return TargetTooLong(
                f"The path and the query of a request may have at most {limits.size} bytes in total.", field="url"
            )
        return HeadersTooLarge(
            f"A request may have at most {limits.count} headers. The request line and the headers may have at most "
            f"{limits.size} bytes in total.",
            field="headers",
        )

    def _refuse(self, error: CausewayError) -> None:
        """Send an error for an invalid or too large request, and close the connection."""
        self._refused = True
        cycle = self.cycle
        if self._reading_head:
            if cycle is not None and not cycle.response_complete:
                cycle.keep_alive = False  # the response to an earlier request ends first
                return
        elif self.pipeline or cycle.response_started:
            self.transport.close()
            return
        body = problem(error)
        headers = b"".join(b"%b: %b\r\n" % header for header in error_headers(error))
        self.transport.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n%b"
            % (STATUS_LINE[http_status(error)], len(body), headers, body)
        )
        self.transport.close()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.seconds, self._too_slow)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self.transport.close()

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _check_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread >= self._unread_bytes:
            self.transport.abort()  # `close` would wait until the client reads
        else:
            self._unread_bytes = unread
            self._read_timer = self.loop.call_later(self._limits.pause, self._check_reading)


def _close_incomplete(cycle: RequestResponseCycle) -> None:
    # Mark the client as disconnected, because uvicorn reports an incomplete response as an application error.
    cycle.disconnected = True
    cycle.transport.close()


def _answer_http_1_0(cycle: RequestResponseCycle) -> None:
    """Adapt a response to HTTP/1.0, which has neither chunks nor the status 100 (RFC 9112, 6.3).

    The end of the connection marks the end of a response of unknown length.
    """
    cycle.waiting_for_100_continue = False
    send: Send = cycle.send  # type: ignore[assignment]  # uvicorn's own types of messages
    until_close = False

    async def send_without_chunks(message: Message) -> None:
        nonlocal until_close
        if message["type"] == "http.response.start":
            until_close = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
            if until_close:
                cycle.chunked_encoding = False
        elif until_close:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    cycle.send = send_without_chunks  # type: ignore[method-assign,assignment]  # uvicorn has no other way
