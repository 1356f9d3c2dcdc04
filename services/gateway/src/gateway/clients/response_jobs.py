"""The queue of responses that run in the background, over JetStream."""

import contextlib
import zlib
from collections.abc import Awaitable, Callable

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from servicekit import response_job_keys
from servicekit.deadline import Deadline
from servicekit.errors import PayloadTooLarge, RateLimited

from gateway.clients.nats_calls import reached
from gateway.domain.response_jobs import ResponseJob

_WHAT = "The queue of responses"
_STREAM = response_job_keys.RESPONSE_JOB_STREAM
_MOST_BYTES = 1_000_000
_RETRY_AFTER, _ACK_SECONDS = 15.0, 2.0
_decode = msgspec.msgpack.Decoder(ResponseJob).decode


class NatsTakenJob:
    """`ports.response_jobs.TakenJob` of a message."""

    def __init__(self, message: Msg) -> None:
        self._message = message
        self.job = _decode(zlib.decompress(message.data))

    async def working(self) -> None:
        """See `ports.response_jobs.TakenJob`."""
        await self._message.in_progress()

    async def done(self) -> None:
        """See `ports.response_jobs.TakenJob`."""
        # Where NATS does not hear of it, the job comes again, and is found done.
        with contextlib.suppress(nats.errors.Error, OSError):
            await self._message.ack_sync(timeout=_ACK_SECONDS)

    async def again(self) -> None:
        """See `ports.response_jobs.TakenJob`."""
        with contextlib.suppress(nats.errors.Error, OSError):  # else it goes to another one when this one is silent
            await self._message.nak()


class NatsResponseJobs:
    """`ports.response_jobs.ResponseJobs` over a stream.

    Args:
        stream: Gives what reads and writes it; raises `Unavailable` while NATS is away.
        most: Jobs of one tenant that may wait or run.
    """

    def __init__(self, stream: Callable[[], Awaitable[JetStreamContext]], *, most: int) -> None:
        self._stream = stream
        self._most = most
        self._pulling: JetStreamContext.PullSubscription | None = None

    async def submit(self, job: ResponseJob, deadline: Deadline) -> None:
        """See `ports.response_jobs.ResponseJobs`."""
        packed = zlib.compress(msgspec.msgpack.encode(job), 1)
        if len(packed) > _MOST_BYTES:
            raise PayloadTooLarge("background: the request is too large to wait.", field="background")
        jetstream, tenant = await self._stream(), job.principal.tenant
        pattern = response_job_keys.response_jobs_of(tenant)
        info = await reached(jetstream.stream_info(_STREAM, pattern), deadline, _WHAT)
        if len(info.state.subjects or ()) >= self._most:
            message = f"background: {self._most} responses of yours wait or run already. Try again later."
            raise RateLimited(message, field="background", retry_after=_RETRY_AFTER)
        sent = jetstream.publish(response_job_keys.response_job(tenant, job.name), packed, stream=_STREAM)
        await reached(sent, deadline, _WHAT)

    async def take(self, seconds: float) -> NatsTakenJob | None:
        """See `ports.response_jobs.ResponseJobs`."""
        jetstream = await self._stream()
        if self._pulling is None:
            made = jetstream.pull_subscribe_bind(response_job_keys.RESPONSE_RUNNERS, stream=_STREAM)
            self._pulling = await reached(made, Deadline.after(seconds), _WHAT)
        pulled = _next(self._pulling, seconds)
        message = await reached(pulled, Deadline.after(seconds + 5), _WHAT)
        return None if message is None else NatsTakenJob(message)


async def _next(pulling: JetStreamContext.PullSubscription, seconds: float) -> Msg | None:
    try:
        [message] = await pulling.fetch(1, timeout=seconds)
    except nats.errors.TimeoutError:
        return None
    return message
