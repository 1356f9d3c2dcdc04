"""The queue on JetStream; implements `ingest.ports.Queue`. Its lanes are told of in docs/ingest.md."""

import asyncio
import itertools
import json
import string
from collections.abc import Mapping
from urllib.parse import quote

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from opentelemetry import trace
from servicekit import keys, telemetry
from servicekit.errors import CausewayError, InvalidRequest, Unavailable
from servicekit.nats import GENERATION, IngestTransport

from ingest.adapters.messages import job_from_message
from ingest.adapters.stores import unavailable
from ingest.domain import Failure, Job

_log = structlog.get_logger(__name__)

_TAKE_SECONDS = 1.0
_ANSWER_SECONDS = 5.0
_LAST_GENERATION = (1 << 63) - 1
_TURNS = (0, 1, 0, 2, 0, 1, 0, 3)
"""Which lane is asked first, in turn: none starves, and the first one has every second job."""

_PLAIN = string.punctuation.replace("%", "") + " "
"""Stands in a header as it is; the rest is percent-encoded."""


class NatsDelivery:
    """A message of the queue; see `ingest.ports.Delivery`."""

    def __init__(self, jetstream: JetStreamContext, message: Msg, job: Job, generation: int) -> None:
        self._jetstream = jetstream
        self._message = message
        self._generation = generation
        self.job = job
        self.attempt = message.metadata.num_delivered
        self.headers: Mapping[str, str] = message.headers or {}

    async def alone(self) -> bool:
        """Whether every job before this one is over that writes to the same index."""
        try:
            first = await self._jetstream.get_msg(
                keys.INGEST_STREAM, 1, keys.ingest_jobs_of(self.job.principal.tenant, self.job.index), next=True
            )
        except (nats.errors.Error, TimeoutError, OSError):
            return False
        return first.seq is not None and first.seq >= self._message.metadata.sequence.stream

    async def keep(self) -> None:
        """Says that the job is being worked on."""
        with unavailable():
            await self._message.in_progress()

    async def done(self) -> None:
        """Takes the job off the queue, and waits until the server has."""
        with unavailable():
            await self._message.ack_sync(timeout=_ANSWER_SECONDS)

    async def again(self, delay: float) -> None:
        """Gives the job back."""
        with unavailable():
            await self._message.nak(delay)

    async def bury(self, failure: Failure) -> None:
        """Copies the job to the dead letters."""
        await _bury(self._jetstream, self._message, failure, self._generation)


class NatsQueue:
    """The job stream, through the durable consumers, one a lane, that all workers share.

    Args:
        client: Its connection.
        transport: Has the stream.
    """

    def __init__(self, client: Client, transport: IngestTransport) -> None:
        self._client = client
        self._transport = transport
        self._turns = itertools.cycle(_TURNS)
        self._turn = asyncio.Lock()
        self._closed = False

    async def take(self) -> NatsDelivery | None:
        """The next job; see `ingest.ports.Queue.take`. A message that holds none is buried."""
        async with self._turn:
            if self._closed:
                return None
            if not self._client.is_connected:
                # Else each request waits for the connection, and all of them are answered when it is back: with
                # more jobs than there is anybody to work on.
                raise Unavailable("The message broker does not answer.")
            message = await self._next()
        return None if message is None else await self._delivery(message)

    async def close(self) -> None:
        """Asks for no more jobs; see `ingest.ports.Queue.close`."""
        # A request that is still open would draw the jobs that are given back, and nobody would work on them.
        self._closed = True
        async with self._turn:
            pass

    async def _next(self) -> Msg | None:
        first = next(self._turns)
        for lane in (first, *(lane for lane in range(keys.INGEST_LANES) if lane != first)):
            if (message := await self._pull(lane)) is not None:
                return message
        # Whoever has nothing in the queue begins in the first lane: it is enough to wait there.
        return await self._pull(0, _TAKE_SECONDS)

    async def _pull(self, lane: int, seconds: float = 0) -> Msg | None:
        """The next message of a lane; None where none came in time."""
        asked: dict[str, object] = {"batch": 1}
        asked |= {"expires": int(seconds * 1e9)} if seconds else {"no_wait": True}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{keys.INGEST_STREAM}.{keys.ingest_consumer(lane)}"
        try:
            # Old style, an inbox for each request: a job comes under its own subject, not under the inbox's.
            answer = await self._client.request(
                subject, json.dumps(asked).encode(), timeout=seconds + _ANSWER_SECONDS, old_style=True
            )
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise Unavailable("The message broker does not answer.") from error
        # What says that there is none has a status and was sent by no stream (ADR-13 of nats-architecture).
        return answer if answer.reply else None

    async def _delivery(self, message: Msg) -> NatsDelivery | None:
        headers = message.headers or {}
        upload = trace.get_current_span(telemetry.extract(headers)).get_span_context()
        generation = self._transport.generation(message.metadata.sequence.stream)
        trace_id = format(upload.trace_id, "032x") if upload.is_valid else ""
        try:
            # One that was sent again from the dead letters is as old as it was.
            generation = _generation(headers) or generation
            job = job_from_message(message.data, generation, trace_id)
        except CausewayError as error:
            _log.error("a message that is no job", subject=message.subject, error=error.message)
            await _bury(self._transport.jetstream, message, Failure("INVALID_REQUEST", error.message), generation)
            try:
                await message.term()
            except nats.errors.Error as failure:
                raise Unavailable("The message broker does not answer.") from failure
            return None
        return NatsDelivery(self._transport.jetstream, message, job, generation)


def _generation(headers: Mapping[str, str]) -> int:
    """The generation that a message says it has; 0 where it says nothing."""
    try:
        generation = int(headers.get(GENERATION, 0))
    except ValueError:
        generation = -1
    if not 0 <= generation <= _LAST_GENERATION:
        raise InvalidRequest(f"The header {GENERATION} holds no generation.", field=GENERATION)
    return generation


async def _bury(jetstream: JetStreamContext, message: Msg, failure: Failure, generation: int) -> None:
    """Copies a message of the queue to the dead letters, with its headers and the reason.

    Raises:
        Unavailable: The broker does not answer.
    """
    headers = {
        **(message.headers or {}),
        # The job's place in the stream: unlike its id, it is another one when the job is sent again.
        "Nats-Msg-Id": f"{keys.INGEST_STREAM}.{message.metadata.sequence.stream}",
        "Causeway-Job-Id": (message.headers or {}).get("Causeway-Job-Id")
        or (message.headers or {}).get("Nats-Msg-Id", ""),
        GENERATION: str(generation),
        "Causeway-Reason": failure.reason,
        "Causeway-Message": quote(" ".join(failure.message.split()), safe=_PLAIN),
        "Causeway-Attempts": str(message.metadata.num_delivered),
    }
    try:
        await jetstream.publish(keys.ingest_dead_subject_of(message.subject), message.data, headers=headers)
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise Unavailable("The message broker does not answer.") from error
