"""Queue background responses in a JetStream stream."""

import asyncio
import contextlib
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from servicekit import response_keys
from servicekit.deadline import Deadline
from servicekit.errors import PayloadTooLarge, RateLimited

from gateway.clients.nats_calls import call_nats
from gateway.domain.response_jobs import ResponseJob

_TARGET = "The queue of responses"
_STREAM = response_keys.RESPONSE_JOB_STREAM
_MAX_BYTES = 1_000_000
_RETRY_AFTER = 15.0
_SHARE_DIVISOR = 8
"""Before the next count of a tenant's jobs, a gateway accepts at most one eighth of the free places, or one job."""
_MAX_TENANTS = 1000
_decode = msgspec.msgpack.Decoder(ResponseJob).decode


class NatsTakenJob:
    """`ports.response_jobs.TakenJob` for a message of the stream."""

    def __init__(self, message: Msg) -> None:
        self._message = message
        self.job = _decode(zlib.decompress(message.data))

    async def send_heartbeat(self) -> None:
        """See `ports.response_jobs.TakenJob`."""
        await self._message.in_progress()

    async def done(self) -> None:
        """See `ports.response_jobs.TakenJob`."""
        # If the acknowledgement is lost, NATS delivers the job again. The gateway that receives it detects that the
        # job is done.
        with contextlib.suppress(nats.errors.Error, OSError):
            await self._message.ack()

    async def requeue(self) -> None:
        """See `ports.response_jobs.TakenJob`."""
        # If the call fails, NATS delivers the job again when the time for its acknowledgement has passed.
        with contextlib.suppress(nats.errors.Error, OSError):
            await self._message.nak()


class NatsResponseJobs:
    """`ports.response_jobs.ResponseJobs` over a stream.

    Args:
        stream: Returns the JetStream context, or raises `Unavailable` while NATS is unavailable.
        limit: The maximum number of waiting and running jobs of a tenant. A tenant may exceed it with simultaneous
            submissions. If several gateways run, each of them may also accept up to an eighth of the limit without
            a new count.
    """

    def __init__(self, stream: Callable[[], Awaitable[JetStreamContext]], *, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._subscription: JetStreamContext.PullSubscription | None = None
        # The number of jobs that a tenant may submit before the next count of its jobs.
        self._left: OrderedDict[str, int] = OrderedDict()

    async def submit(self, job: ResponseJob, deadline: Deadline) -> None:
        """See `ports.response_jobs.ResponseJobs`."""
        # Compress in a thread, because a long request would delay all running answers.
        packed = await asyncio.to_thread(zlib.compress, msgspec.msgpack.encode(job), 1)
        if len(packed) > _MAX_BYTES:
            raise PayloadTooLarge(
                "background: the request is too large for the queue. Send it without `background`.",
                field="background",
            )
        jetstream, tenant = await self._stream(), job.principal.tenant
        await self._check(jetstream, tenant, deadline)
        sent = jetstream.publish(response_keys.response_job(tenant, job.name), packed, stream=_STREAM)
        await call_nats(sent, deadline, _TARGET)

    async def _check(self, jetstream: JetStreamContext, tenant: str, deadline: Deadline) -> None:
        """Refuse a job of a tenant with too many jobs.

        The cost of a count grows with the number of jobs. Therefore the gateway counts the jobs at each submission
        only if the tenant is near the limit.

        Raises:
            RateLimited: The tenant has the maximum number of jobs.
        """
        left = self._left.pop(tenant, 0)
        if left <= 0:
            pattern = response_keys.response_jobs_of(tenant)
            info = await call_nats(jetstream.stream_info(_STREAM, pattern), deadline, _TARGET)
            free = self._limit - len(info.state.subjects or ())
            if free <= 0:
                message = f"background: {self._limit} responses of your tenant wait or run. Try again later."
                raise RateLimited(message, field="background", retry_after=_RETRY_AFTER)
            # Other gateways may use some of the free places at the same time.
            left = max(1, free // _SHARE_DIVISOR)
        self._left[tenant] = left - 1
        while len(self._left) > _MAX_TENANTS:
            self._left.popitem(last=False)

    async def take(self, seconds: float) -> NatsTakenJob | None:
        """See `ports.response_jobs.ResponseJobs`."""
        jetstream = await self._stream()
        if self._subscription is None:
            binding = jetstream.pull_subscribe_bind(response_keys.RESPONSE_RUNNERS, stream=_STREAM)
            self._subscription = await call_nats(binding, Deadline.after(seconds), _TARGET)
        fetch = _next(self._subscription, seconds)
        message = await call_nats(fetch, Deadline.after(seconds + 5), _TARGET)
        return None if message is None else NatsTakenJob(message)


async def _next(subscription: JetStreamContext.PullSubscription, seconds: float) -> Msg | None:
    try:
        [message] = await subscription.fetch(1, timeout=seconds)
    except nats.errors.TimeoutError:
        return None
    return message
