"""The endpoints of the chat paths, as raw ASGI applications.

They do not use FastAPI's requests and responses, because every token of an answer passes through this module. An
endpoint reads the body once and writes events as bytes.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import (
    BrokenOff,
    CausewayError,
    DeadlineExceeded,
    Internal,
    MethodNotAllowed,
    http_status,
)
from servicekit.tasks import cancel_and_wait
from starlette.types import Message, Receive, Scope, Send

from gateway.answering.pipeline import Pipeline
from gateway.answering.timeline import Timeline
from gateway.dialects.exchange import ChatRequest, Dialect, Exchange, Media
from gateway.dialects.registration import ChatRoute
from gateway.dialects.responses.exchange import ResponsesExchange
from gateway.domain import Batch, Done
from gateway.routes.answer_messages import begin_stream, server_timing, write
from gateway.routes.background import Acceptance
from gateway.routes.body import headers_for_detectors, unsupported_media, wait_for_disconnect
from gateway.routes.citation_links import CitationLinks, without_links
from gateway.routes.heartbeat import Heartbeat
from gateway.routes.logged_answers import LoggedAnswer
from gateway.routes.response_reading import ResponseReading
from gateway.routes.session_memory import SessionMemory
from gateway.routes.stored_responses import StoredResponses
from gateway.server.request_state import state_of
from gateway.server.responses import JSON, break_off, refuse, respond

_log = structlog.get_logger(__name__)

# The deadlines of the services end before this one, because their errors are more precise.
_DEADLINE_SLACK_SECONDS = 1.0
_FORM = b"multipart/form-data"

Answer = AsyncGenerator[Batch, None]


class ChatEndpoint:
    """The ASGI application of one chat path.

    Args:
        chat: The path, and the choice of the dialect for a request.
        pipeline: Answers the requests.
        timeout: The time limit of a whole answer in seconds, counted from the end of the request's body.
        heartbeat: Seconds of silence after which a stream gets a comment.
        memory: Stores the client's sessions.
        stored: Stores responses that later requests continue; None: responses are not stored.
        acceptance: Accepts background responses; None: the path has no background responses.
        reading: Follows background responses; None: the path has no background responses.
        links: Turns citations into links, for the profiles that enable links.
        passed_headers: The names, in lower case, of the headers that detectors may get.
    """

    def __init__(
        self,
        chat: ChatRoute,
        pipeline: Pipeline,
        *,
        timeout: float,
        heartbeat: float,
        memory: SessionMemory,
        stored: StoredResponses | None = None,
        acceptance: Acceptance | None = None,
        reading: ResponseReading | None = None,
        links: CitationLinks,
        passed_headers: frozenset[bytes] = frozenset(),
    ) -> None:
        self._chat = chat
        self._pipeline = pipeline
        self._timeout = timeout
        self._heartbeat = heartbeat
        self._memory = memory
        self._stored = stored
        self._acceptance, self._reading = acceptance, reading
        self._links = links
        self._passed_headers = passed_headers

    def dialect(self, scope: Scope, body: bytes = b"") -> Dialect:
        """Return the dialect of a request. Without the body, return the dialect of errors about the body."""
        return self._chat.choose(state_of(scope).frontend, dict(scope["headers"]), body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. If the client leaves, cancel the answer, unless its events are stored."""
        dialect = self.dialect(scope)
        if scope["method"] != "POST":
            wrong = MethodNotAllowed(f"{scope['path']} does not accept {scope['method']}.")
            await respond(send, http_status(wrong), JSON, dialect.error(wrong), [(b"allow", b"POST")])
            return
        try:
            body = without_links(await _body(scope, receive, dialect.media))
        except _ClientLeft:
            return
        except CausewayError as error:
            await refuse(send, error, dialect.error(error), dialect.media.status(error))
            return
        tasks = (
            asyncio.ensure_future(self._answer(self.dialect(scope, body), scope, body, send)),
            asyncio.ensure_future(wait_for_disconnect(receive)),
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if state_of(scope).continues:
                await asyncio.wait(tasks[:1])
        finally:
            await cancel_and_wait(*tasks)
        answering, _ = tasks
        if not answering.cancelled():
            answering.result()

    async def _answer(self, dialect: Dialect, scope: Scope, body: bytes, send: Send) -> None:
        begun = False  # whether a part of the response was sent
        timeline = Timeline()

        async def send_and_note(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        failure: CausewayError
        try:
            async with asyncio.timeout(self._timeout + _DEADLINE_SLACK_SECONDS):
                state_of(scope).dialect = dialect.name
                request, deadline = self._request(scope, body), Deadline.after(self._timeout)
                if self._stored is not None:
                    request = await self._stored.recall(request, deadline)
                exchange = dialect.parse(request)
                state_of(scope).timeline = timeline
                if exchange.turn.retrieval.indexes:
                    state_of(scope).log["index"] = ",".join(exchange.turn.retrieval.indexes)
                if exchange.turn.model_alias:
                    state_of(scope).log["assistant"] = exchange.turn.model_alias
                state = state_of(scope)
                if self._acceptance is not None and isinstance(exchange, ResponsesExchange) and exchange.background:
                    accepted = await self._acceptance.accept(exchange, request, state, deadline)
                    await self._send_accepted(exchange, accepted, request, send_and_note)
                    state.done = Done(())  # this request is complete, although the response may not be
                    return
                recorder = await self._memory.recall(exchange, state.principal, state.frontend, deadline)
                turn = replace(exchange.turn, unary=not exchange.streaming)
                answer = self._pipeline.answer(turn, deadline, timeline)
                if recorder is not None:
                    answer = recorder.through(answer)
                run = None
                if self._stored is not None:
                    run = self._stored.run(exchange, state.principal, state.frontend.name, deadline)
                    if run is None:
                        answer = self._stored.append_when_done(
                            exchange, state.principal, state.frontend.name, answer
                        )
                if state.frontend.links_citations and dialect.media.text_only:
                    answer = self._links.through(answer, scope)
                if run is not None:
                    logged_answer = LoggedAnswer(run, dialect.media, exchange, state, self._heartbeat)
                    done = await logged_answer.send(answer, send_and_note)
                elif exchange.streaming:
                    done = await self._stream(dialect, exchange, answer, scope, send_and_note)
                else:
                    done = await self._whole(dialect, exchange, answer, send_and_note)
            state_of(scope).done = done
            state_of(scope).log |= _counts(done)
            return
        except CausewayError as error:
            failure = error
        except TimeoutError as error:
            failure = DeadlineExceeded("The request took longer than its deadline.")
            failure.__cause__ = error
        except Exception as error:  # the boundary: the client gets the dialect's error, the log gets the cause
            _log.exception("answer failed", dialect=dialect.name, error=str(error))
            failure = Internal()
        if begun:
            # The status is already sent. The usual cause: the time limit has passed, because the client reads too
            # slowly. Such a client would not receive an error, either.
            _log.warning("answer broke off", dialect=dialect.name, error=failure.message)
            break_off(scope)
            return
        client_error = dialect.media.client_error(failure)
        if client_error is not failure:
            _log.warning("answer failed", dialect=dialect.name, error=failure.message)
            failure = client_error
        if timeline.model_responded and dialect.media.clients_retry and _is_retried(http_status(failure)):
            failure = BrokenOff(failure.message)
        await refuse(send, failure, dialect.error(failure), dialect.media.status(failure))

    async def _send_accepted(
        self, exchange: ResponsesExchange, accepted: bytes, request: ChatRequest, send: Send
    ) -> None:
        """Send the queued state of a background response, or follow its events."""
        media = self._chat.choose(request.frontend, {}, request.body).media
        if self._reading is None or not exchange.streaming:
            await respond(send, 200, media.unary, accepted, list(exchange.headers))
            return
        await begin_stream(send, media, exchange)
        async with aclosing(self._reading.follow(request.principal, exchange.response_id)) as events:
            async for data in events:
                await write(send, data)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _request(self, scope: Scope, body: bytes) -> ChatRequest:
        headers = dict(scope["headers"])
        return ChatRequest(
            body,
            state_of(scope).principal,
            state_of(scope).frontend,
            self._chat.streaming,
            headers.get(b"content-type", b"").decode("latin-1"),
            single_turn=self._chat.single_turn,
            headers=headers_for_detectors(scope, self._passed_headers),
            model=scope.get("path_params", {}).get("model", ""),
        )

    async def _whole(self, dialect: Dialect, exchange: Exchange, answer: Answer, send: Send) -> Done:
        done = Done(())
        async with aclosing(answer) as events:
            async for batch in events:
                exchange.add_events(batch)
                if isinstance(last := batch[-1], Done):
                    done = last
        headers = [(b"server-timing", server_timing(done.steps)), *exchange.headers]
        await respond(send, 200, dialect.media.unary, exchange.complete(), headers)
        return done

    async def _stream(
        self, dialect: Dialect, exchange: Exchange, answer: Answer, scope: Scope, send: Send
    ) -> Done | None:
        """Send the answer. Return its last event, or None if the answer broke off."""
        broken = False
        async with aclosing(answer) as events:
            # Until the first events are sent, an error can be an HTTP status.
            try:
                batch = await anext(events)
                first = exchange.render(batch)
            except CausewayError as error:
                if not dialect.media.errors_in_stream:
                    raise
                await begin_stream(send, dialect.media, exchange)
                await send({"type": "http.response.body", "body": exchange.render_failure(error)})
                return None
            await begin_stream(send, dialect.media, exchange)
            async with Heartbeat(send, dialect.media.heartbeat, self._heartbeat) as heartbeat_sender:
                try:
                    await write(heartbeat_sender.send, first)
                    async for batch in events:
                        await write(heartbeat_sender.send, exchange.render(batch))
                except CausewayError as error:
                    _log.warning("answer broke off", dialect=dialect.name, error=error.message, exc_info=error)
                    await write(heartbeat_sender.send, exchange.render_failure(error))
                    broken = dialect.media.omits_end_on_failure
                except Exception as error:  # the boundary, as above
                    _log.exception("answer broke off", dialect=dialect.name, error=str(error))
                    await write(heartbeat_sender.send, exchange.render_failure(Internal()))
                    broken = dialect.media.omits_end_on_failure
        if broken:
            break_off(scope)
            return None
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return last if isinstance(last := batch[-1], Done) else None


def _is_retried(status: int) -> bool:
    """Return whether clients retry a request automatically after this status."""
    return status == 429 or status >= 500


def _counts(done: Done | None) -> dict[str, int]:
    """Return the counts of passages for the request's log line."""
    if done is None or done.selection is None:
        return {}
    selection = done.selection
    return {
        "nodes_kept": len(selection.passages),
        "nodes_under_threshold": selection.under_threshold,
        "nodes_too_large": selection.too_large,
    }


class _ClientLeft(Exception):
    """The connection closed before the request was complete."""


async def _body(scope: Scope, receive: Receive, accepted: Media) -> bytes:
    media = dict(scope["headers"]).get(b"content-type", b"").split(b";")[0].strip().lower()
    is_accepted = media == JSON or media.endswith(b"+json") or (accepted.accepts_forms and media == _FORM)
    if not is_accepted and (media or accepted.requires_json_type):
        names = "application/json or multipart/form-data" if accepted.accepts_forms else "application/json"
        raise unsupported_media(names, media.decode("latin-1"))
    pieces = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientLeft
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)
