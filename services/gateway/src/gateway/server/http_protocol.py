"""The gateway's HTTP/1.1: uvicorn's protocol with additional checks and limits.

The end of a message decides where the next request begins. So a request with ambiguous framing is refused, and its
connection is closed (RFC 9112, 6.3 and 11.2).
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
"""How long a stopping server waits for the first request of an open connection."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits of a request's head, and the time limits of clients around an answer.

    Attributes:
        size: The maximum number of bytes of the request line and the headers.
        count: The maximum number of headers.
        seconds: Seconds from the start of the connection, or from the first byte of a later request, to the last
            header. If an answer ends before its request is complete, the time to the next head has the same limit.
        idle: Seconds from the end of an answer to the first byte of the next request.
        pause: The maximum number of seconds in which a client does not read any of a waiting answer.
    """

    size: int = 32 * 1024
    count: int = 100
    seconds: float = 30.0
    idle: float = 75.0
    pause: float = 30.0


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits and unambiguous framing.

    Without these limits, the parser accepts headers of any size, and treats a request with ``Connection: Upgrade``
    as the last one of its connection. uvicorn waits without a time limit for headers, for the rest of a refused
    request, and for a client that does not read.

    Args:
        limits: The limits.
        connections: The open connections of the process.
        args: As for uvicorn's protocol.
        kwargs: As for uvicorn's protocol.
    """

    def __init__(self, limits: HttpLimits, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._connections = connections
        self._place = Place.OPEN
        self._reading_head = self._idle = True
        self._whole = self._refused = self._resuming = False
        self._has_request = self._draining = False
        self._piece = self._fed = self._unread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._place = self._connections.opened(self)
        if self._place is Place.REFUSED:
            self._refused = True
            transport.abort()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._connections.closed(self)
        self._wait_no_more()
        self._is_read()
        super().connection_lost(exc)

    def close(self) -> None:
        """Close the connection, which has no request, to make room for another one."""
        self.transport.close()

    def shutdown(self) -> None:
        """Answer running requests and the first request of a new connection; close idle connections.

        A client retries if a used connection breaks, but not if a new connection breaks.
        """
        if self._has_request or self._refused:
            super().shutdown()
            return
        self._draining = True
        self._wait_no_more()
        self._timer = self.loop.call_later(_FIRST_REQUEST_SECONDS, self._too_slow)

    def data_received(self, data: bytes) -> None:
        """Read on. A request in one piece, the usual case, costs a few comparisons."""
        if self._refused:
            return
        if self._idle:
            self._idle = False
            self._connections.busy(self)
        self._piece = len(data)
        # The parser does not show an unfinished header or trailer.
        self._fed += self._piece
        self._unset_keepalive_if_required()
        self._feed(data)
        if self.transport.is_closing():
            return
        if self._fed > 2 * self._limits.size and not self._whole:
            self._refuse(self._too_large())
        elif self._reading_head:
            self._wait()
        elif not self.cycle.response_complete:
            self._wait_no_more()

    def _feed(self, data: bytes) -> None:
        """Parse a piece; ignore a request to upgrade, as RFC 9110, 7.8 requires of a server without upgrades.

        For the parser such a request ends with its head, and another protocol follows. Here its body follows. So
        the parser gets a second head that has only the request's framing.
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
        """Begin a request, at any position of the current piece."""
        if self._resuming:
            return
        super().on_message_begin()
        self._reading_head, self._whole = True, False
        self._fed = self._piece

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request target."""
        if not self._resuming:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, without the white space around its value (RFC 9110, 5.5).

        Trailers are ignored (RFC 9110, 6.5): nothing here uses them.
        """
        if self._reading_head:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Check the head, and let the application answer."""
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
        self.scope["extensions"] = {BREAK_OFF: {"close": functools.partial(_break_off, self.cycle)}}
        self._reading_head, self._fed = False, 0

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body; other layers measure it."""
        self._fed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request, unless only its head has ended for the parser."""
        if self.parser.should_upgrade():
            return
        self._whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """End the answer; wait for a limited time for the rest of its request."""
        super().on_response_complete()
        if not self.cycle.response_complete:
            return  # the next request has already begun
        if self._whole:
            self._idle = True
            self._connections.idle(self)
        else:
            self._wait()

    def pause_writing(self) -> None:
        """Watch a client that reads more slowly than the answer is written."""
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._reader = self.loop.call_later(self._limits.pause, self._look)

    def resume_writing(self) -> None:
        """Continue to write after the client has read."""
        self._is_read()
        super().resume_writing()

    def _check_head(self) -> None:
        """Refuse a head that is too large, or has an ambiguous framing or host.

        Raises:
            CausewayError: The head is invalid.
        """
        limits = self._limits
        if len(self.headers) > limits.count or (self._fed > limits.size and self._size() > limits.size):
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
            raise InvalidRequest("The Host header must be a name or an address, and may have a port.", field="host")
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and version == "1.0":
            raise InvalidRequest("HTTP/1.0 has no Transfer-Encoding.", field="transfer-encoding")
        if codings and codings != [b"chunked"]:
            raise NotSupported("Transfer-Encoding must be chunked, and nothing else.", field="transfer-encoding")
        if self._place is Place.RESERVED and self.url.split(b"?")[0].decode("ascii", "replace") not in HEALTH:
            raise Unavailable("The server has no room for another connection. Try again shortly.", retry_after=2)

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _too_large(self) -> CausewayError:
        limits = self._limits
        return HeadersTooLarge(
            f"A request may have at most {limits.count} headers of {limits.size} bytes in all.", field="headers"
        )

    def _refuse(self, error: CausewayError) -> None:
        """Answer an invalid or too large request, and end the connection."""
        self._refused = True
        cycle = self.cycle
        if self._reading_head:
            if cycle is not None and not cycle.response_complete:
                cycle.keep_alive = False  # earlier requests are answered first
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

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._limits.seconds, self._too_slow)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self.transport.close()

    def _is_read(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def _look(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread >= self._unread:
            self.transport.abort()  # `close` would wait for the client
        else:
            self._unread = unread
            self._reader = self.loop.call_later(self._limits.pause, self._look)


def _break_off(cycle: RequestResponseCycle) -> None:
    # Pretend that the client has left, because uvicorn treats an unfinished answer as an error of the application.
    cycle.disconnected = True
    cycle.transport.close()


def _answer_http_1_0(cycle: RequestResponseCycle) -> None:
    """End an answer of unknown length with the connection: HTTP/1.0 has no chunks (RFC 9112, 6.3), no 100."""
    cycle.waiting_for_100_continue = False
    send: Send = cycle.send  # type: ignore[assignment]  # uvicorn's own types of messages
    open_end = False

    async def send_without_chunks(message: Message) -> None:
        nonlocal open_end
        if message["type"] == "http.response.start":
            open_end = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
            if open_end:
                cycle.chunked_encoding = False
        elif open_end:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    cycle.send = send_without_chunks  # type: ignore[method-assign,assignment]  # uvicorn has no place for it
