"""Sends the answer of a stored response. Each event is written to the log before it is sent."""

from contextlib import aclosing

import structlog
from servicekit.errors import CausewayError
from starlette.types import Send

from gateway.dialects.exchange import Exchange, Media
from gateway.domain import Done
from gateway.response_runs.run import Answer, Run
from gateway.routes.answer_messages import begin_stream, server_timing, write
from gateway.routes.heartbeat import Heartbeat
from gateway.server.request_state import RequestState
from gateway.server.responses import respond

_log = structlog.get_logger(__name__)


class LoggedAnswer:
    """Sends the answer of one stored response.

    Args:
        run: Produces the answer and writes its events.
        media: Content types of the dialect.
        exchange: Renders the answer.
        state: Records whether the answer continues after the client has disconnected.
        heartbeat: Seconds of silence after which a stream gets a heartbeat.
    """

    def __init__(self, run: Run, media: Media, exchange: Exchange, state: RequestState, heartbeat: float) -> None:
        self._run, self._media, self._exchange = run, media, exchange
        self._state, self._heartbeat = state, heartbeat

    async def send(self, answer: Answer, send: Send) -> Done | None:
        """Send the answer, as a stream or in one piece. Return its last event, or None if the stream broke off.

        Raises:
            CausewayError: The answer failed before anything was sent.
        """
        return await (self._stream(answer, send) if self._exchange.streaming else self._whole(answer, send))

    async def _whole(self, answer: Answer, send: Send) -> Done | None:
        async with aclosing(self._run.logged_events(answer)) as written:
            async for _ in written:
                self._state.continues = self._run.continues
        if self._run.failure is not None:
            raise self._run.failure
        done = self._run.done or Done(())
        headers = [(b"server-timing", server_timing(done.steps)), *self._exchange.headers]
        await respond(send, 200, self._media.unary, self._exchange.complete(), headers)
        return done

    async def _stream(self, answer: Answer, send: Send) -> Done | None:
        async with aclosing(self._run.logged_events(answer)) as written:
            data = await anext(written)
            self._state.continues = self._run.continues
            await begin_stream(send, self._media, self._exchange)
            async with Heartbeat(send, self._media.heartbeat, self._heartbeat) as heartbeat:
                try:
                    await write(heartbeat.send, data)
                    async for data in written:
                        await write(heartbeat.send, data)
                except CausewayError as error:
                    _log.warning("answer broke off", dialect="responses", error=error.message)
                    await write(heartbeat.send, self._exchange.render_failure(error))
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return self._run.done
