"""The HTTP server: uvicorn, with limits on what a client may send, or leave unread, where nothing else sees it."""

import asyncio
import contextlib
import functools
import socket
from dataclasses import dataclass
from typing import Any

import uvicorn
from servicekit.errors import HeadersTooLarge, Unavailable, http_status
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.protocols.problem import problem


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """What a request's line and headers may have, and how long what surrounds an answer may take.

    Attributes:
        size: Bytes, the line included.
        count: Headers.
        seconds: From the connection's beginning, or from the first byte of a later request, to the last header;
            likewise from an answer's end to the next head, where the rest of its request came only then.
        pause: In which a client takes nothing of an answer that waits for it.
    """

    size: int = 32 * 1024
    count: int = 100
    seconds: float = 30.0
    pause: float = 30.0


class LimitedHttp(HttpToolsProtocol):
    """uvicorn's protocol, whose parser by itself takes headers without end, before a body and behind it, and which
    waits without end: for them, for the rest of a request that was refused, for a client that does not read.

    Args:
        limits: What is let through.
        args: As uvicorn makes it.
        kwargs: Likewise.
    """

    def __init__(self, limits: HeadLimits, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._reading_head = True
        self._whole = self._refused = False
        self._piece = self._fed = self._unread = 0
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits for nothing any more."""
        self._wait_no_more()
        self._is_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on. Requests that come in one piece, as nearly all do, cost a few comparisons."""
        if self._refused:
            return
        self._piece = len(data)
        # What the parser holds of a header, or of a trailer, that has not ended shows nowhere else.
        self._fed += self._piece
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._fed > 2 * self._limits.size and not self._whole:
            self._refuse()
        elif self._reading_head:
            self._wait()
        elif not self.cycle.response_complete:
            self._wait_no_more()

    def on_message_begin(self) -> None:
        """A request begins, somewhere in the piece that is being read."""
        super().on_message_begin()
        self._reading_head, self._whole = True, False
        self._fed = self._piece

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; what comes behind a body is left aside: nothing here would look at it (RFC 9110, 6.5)."""
        if self._reading_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there; it is measured where it can be too large at all."""
        limits = self._limits
        if len(self.headers) > limits.count or (self._fed > limits.size and self._size() > limits.size):
            self._refuse()
            raise ValueError  # ends the parser's work
        super().on_headers_complete()
        self._reading_head, self._fed = False, 0

    def on_body(self, body: bytes) -> None:
        """A piece of the body, which others measure."""
        self._fed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there."""
        self._whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is given; the rest of the request, where nobody asked for it, may still come for a while."""
        super().on_response_complete()
        if self.cycle.response_complete and not self._whole:
            self._wait()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is answered."""
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._reader = self.loop.call_later(self._limits.pause, self._look)

    def resume_writing(self) -> None:
        """It has read on."""
        self._is_read()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read, or is too much, ends the connection."""
        if not self._refused:
            super().send_400_response(msg)

    def _size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _refuse(self) -> None:
        self._refused = True
        if self._reading_head:
            limits = self._limits
            error = HeadersTooLarge(
                f"A request may have {limits.count} headers, and {limits.size} bytes of them.", field="headers"
            )
            body = problem(error)
            self.transport.write(
                b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % (STATUS_LINE[http_status(error)], len(body), body)
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
            self.transport.abort()  # to close it would wait for the client
        else:
            self._unread = unread
            self._reader = self.loop.call_later(self._limits.pause, self._look)


class HttpServer(uvicorn.Server):
    """uvicorn as the gateway runs it: without signal handlers of its own, the process has one pair for all.

    Args:
        app: The ASGI application.
        grace: Seconds that running answers get when the server stops.
        limits: What requests' lines and headers may have.
    """

    def __init__(self, app: ASGIApp, grace: float, limits: HeadLimits | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=functools.partial(LimitedHttp, limits or HeadLimits()),  # type: ignore[arg-type]  # it is called
                ws="none",
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, int(grace)),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # as in the base class
        """Leaves the signals alone."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        Unavailable: The address is taken, or is none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise Unavailable(f"Cannot listen on {host}, port {port}: {error.strerror or error}.") from None
