"""The queue on JetStream; implements `ingest.ports.Queue`. docs/ingest.md describes its lanes."""

import asyncio
import itertools
import json
import math
import string
import time
from collections.abc import Callable, Mapping
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

from ingest.adapters.messages import job_from_message, without_content
from ingest.adapters.stores import unavailable_errors
from ingest.domain import Failure, Job

_log = structlog.get_logger(__name__)

_POLL_SECONDS = 1.0
"""Seconds for which a poll waits for a job if all lanes are empty."""
_REPLY_SECONDS = 5.0
"""Seconds for which a request waits for the reply of NATS."""
_MAX_GENERATION = (1 << 63) - 1
_FIRST_LANES = (0, 1, 0, 2, 0, 1, 0, 3)
"""The lane that each successive poll tries first. Every second poll begins with the first lane. No lane starves."""
_EMPTY_SECONDS = 0.1
"""Seconds for which a lane that was empty is polled last. A poll of an empty lane costs as much as a delivery."""

_PLAIN = string.punctuation.replace("%", "") + " "
"""Characters besides letters and digits that are not percent-encoded in a header."""


class NatsDelivery:
    """A message of the queue; see `ingest.ports.Delivery`."""

    def __init__(self, jetstream: JetStreamContext, message: Msg, job: Job, generation: int) -> None:
        self._jetstream = jetstream
        self._message = message
        self._generation = generation
        self.job = job
        self.attempt = message.metadata.num_delivered
        self.headers: Mapping[str, str] = message.headers or {}

    async def earlier_jobs_ended(self) -> bool:
        """See `ingest.ports.Delivery.earlier_jobs_ended`. Only jobs for the same index count."""
        try:
            first = await self._jetstream.get_msg(
                keys.INGEST_STREAM, 1, keys.ingest_jobs_of(self.job.principal.tenant, self.job.index), next=True
            )
        except (nats.errors.Error, TimeoutError, OSError):
            return False
        return first.seq is not None and first.seq >= self._message.metadata.sequence.stream

    async def extend(self) -> None:
        """See `ingest.ports.Delivery.extend`."""
        with unavailable_errors():
            await self._message.in_progress()

    async def acknowledge(self) -> None:
        """Remove the job from the queue, and wait for the server's confirmation."""
        with unavailable_errors():
            await self._message.ack_sync(timeout=_REPLY_SECONDS)

    async def redeliver(self, delay: float) -> None:
        """See `ingest.ports.Delivery.redeliver`."""
        with unavailable_errors():
            await self._message.nak(delay)

    async def copy_to_dead_letters(self, failure: Failure) -> None:
        """See `ingest.ports.Delivery.copy_to_dead_letters`."""
        await _copy_to_dead_letters(self._jetstream, self._message, failure, self._generation)


class NatsQueue:
    """The job stream. All workers share its durable consumers, one for each lane.

    Args:
        client: The connection.
        transport: The stream and the buckets.
        clock: Returns the seconds of a monotonic clock.
    """

    def __init__(
        self, client: Client, transport: IngestTransport, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._transport = transport
        self._clock = clock
        self._empty_until = [-math.inf] * keys.INGEST_LANES
        self._first_lanes = itertools.cycle(_FIRST_LANES)
        self._polling = asyncio.Lock()
        self._closed = False

    async def take(self) -> NatsDelivery | None:
        """See `ingest.ports.Queue.take`. A message that is not a job goes to the dead letters."""
        async with self._polling:
            if self._closed:
                return None
            if not self._client.is_connected:
                # Otherwise, each poll would leave a request that waits for the connection. After the reconnect, the
                # requests would receive more jobs than the worker can process.
                raise Unavailable("The message broker does not answer.")
            message = await self._next()
        return None if message is None else await self._delivery(message)

    async def close(self) -> None:
        """See `ingest.ports.Queue.close`."""
        # Otherwise, a pending poll could receive the jobs that this worker returns to the queue before it ends.
        self._closed = True
        async with self._polling:
            pass

    async def _next(self) -> Msg | None:
        first, now = next(self._first_lanes), self._clock()
        lanes = sorted(range(keys.INGEST_LANES), key=lambda lane: (self._empty_until[lane] > now, lane != first))
        for lane in lanes:
            if (message := await self._pull(lane)) is not None:
                return message
            self._empty_until[lane] = now + _EMPTY_SECONDS
        # The gateway puts a tenant's first waiting job into the first lane. If all lanes are empty, it is enough to
        # wait for this lane.
        return await self._pull(0, _POLL_SECONDS)

    async def _pull(self, lane: int, seconds: float = 0) -> Msg | None:
        """Return the next message of a lane, or None if none arrives in time."""
        request: dict[str, object] = {"batch": 1}
        request |= {"expires": int(seconds * 1e9)} if seconds else {"no_wait": True}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{keys.INGEST_STREAM}.{keys.ingest_consumer(lane)}"
        try:
            # The old style has an inbox for each request. The new style has one inbox, and finds the request of a
            # reply by the subject of the reply. A job has the subject to which it was published.
            reply = await self._client.request(
                subject, json.dumps(request).encode(), timeout=seconds + _REPLY_SECONDS, old_style=True
            )
        except (nats.errors.Error, TimeoutError, OSError) as error:
            raise Unavailable("The message broker does not answer.") from error
        # A status message has no reply subject; a message of the stream has one (ADR-13 of nats-architecture).
        return reply if reply.reply else None

    async def _delivery(self, message: Msg) -> NatsDelivery | None:
        headers = message.headers or {}
        upload = trace.get_current_span(telemetry.extract(headers)).get_span_context()
        generation = self._transport.generation(message.metadata.sequence.stream)
        trace_id = format(upload.trace_id, "032x") if upload.is_valid else ""
        try:
            # A job that an operator resends from the dead letters keeps its generation.
            generation = _generation(headers) or generation
            job = job_from_message(message.data, generation, trace_id)
        except CausewayError as error:
            _log.error("a message of the queue is not a job", subject=message.subject, error=error.message)
            await _copy_to_dead_letters(
                self._transport.jetstream, message, Failure("INVALID_REQUEST", error.message), generation
            )
            try:
                await message.term()
            except nats.errors.Error as failure:
                raise Unavailable("The message broker does not answer.") from failure
            return None
        return NatsDelivery(self._transport.jetstream, message, job, generation)


def _generation(headers: Mapping[str, str]) -> int:
    """Return the generation in a message's headers, or 0 if the header is missing.

    Raises:
        InvalidRequest: The header is not a generation.
    """
    try:
        generation = int(headers.get(GENERATION, 0))
    except ValueError:
        generation = -1
    if not 0 <= generation <= _MAX_GENERATION:
        raise InvalidRequest(
            f"The header {GENERATION} must be an integer from 0 to {_MAX_GENERATION}.", field=GENERATION
        )
    return generation


async def _copy_to_dead_letters(
    jetstream: JetStreamContext, message: Msg, failure: Failure, generation: int
) -> None:
    """Copy a message of the queue to the dead letters, with its headers and the reason.

    The copy does not contain the original, which remains in the store. The stream of the dead letters has a quarter
    of the queue's space. When the space is full, the stream drops the oldest dead letters. Their originals remain.

    Raises:
        Unavailable: The broker does not answer.
    """
    headers = {
        **(message.headers or {}),
        # The job's sequence in the stream. Unlike the job's id, the sequence changes when the job is resent.
        "Nats-Msg-Id": f"{keys.INGEST_STREAM}.{message.metadata.sequence.stream}",
        "Causeway-Job-Id": (message.headers or {}).get("Causeway-Job-Id")
        or (message.headers or {}).get("Nats-Msg-Id", ""),
        GENERATION: str(generation),
        "Causeway-Reason": failure.reason,
        "Causeway-Message": quote(" ".join(failure.message.split()), safe=_PLAIN),
        "Causeway-Attempts": str(message.metadata.num_delivered),
    }
    data = without_content(message.data)
    try:
        await jetstream.publish(keys.ingest_dead_subject_of(message.subject), data, headers=headers)
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise Unavailable("The message broker does not answer.") from error
