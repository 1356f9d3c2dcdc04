"""The contract of the queue of responses, on the fake and on the adapter with a real nats-server."""

import asyncio
import contextlib
from dataclasses import replace

import pytest
from causeway_testing.gateway.response_log import FakeResponseJobs
from gateway.clients.nats_connection import NatsLink
from gateway.clients.response_jobs import NatsResponseJobs
from gateway.domain.response_jobs import ResponseJob
from gateway.domain.responses import RESPONSE, new_name
from gateway.ports.response_jobs import ResponseJobs
from servicekit import response_keys
from servicekit.deadline import Deadline
from servicekit.errors import PayloadTooLarge, RateLimited
from servicekit.principal import Principal

ANN = Principal("t", "ann|ä", ("o",), ("g",), ("ask",), "https://id.example.com")


def job(principal: Principal = ANN, body: bytes = b'{"input": "?"}') -> ResponseJob:
    return ResponseJob(f"{RESPONSE}_{new_name()}", 7, principal, "k", "help", body, {"x-a": "b"}, "ann")


def soon() -> Deadline:
    return Deadline.after(60)


@pytest.fixture(params=["fake", "nats"])
def queue(request: pytest.FixtureRequest) -> ResponseJobs:
    if request.param == "fake":
        return FakeResponseJobs(limit=2)
    link: NatsLink = request.getfixturevalue("link")
    return NatsResponseJobs(link.response_jobs, limit=2)


async def test_a_job_is_done_once(queue: ResponseJobs) -> None:
    """One gateway at a time takes a job. A job that was given back is taken again."""
    one = job()
    await queue.submit(one, soon())
    taken = await queue.take(5)
    assert taken is not None
    assert taken.job == one
    await taken.send_heartbeat()
    assert await queue.take(0.2) is None
    await taken.requeue()
    taken = await queue.take(5)
    assert taken is not None
    await taken.done()
    assert await queue.take(0.2) is None


async def test_the_jobs_of_a_tenant_are_limited(queue: ResponseJobs) -> None:
    """Running jobs count in a tenant's limit. Another tenant has its own limit."""
    await queue.submit(job(), soon())
    taken = await queue.take(5)
    await queue.submit(job(), soon())
    with pytest.raises(RateLimited) as refused:
        await queue.submit(job(), soon())
    assert refused.value.retry_after == 15.0
    await queue.submit(job(replace(ANN, tenant="u")), soon())
    assert taken is not None
    await taken.done()
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(RateLimited):  # NATS updates its count a moment later
                await queue.submit(job(), soon())
                break


async def test_a_high_limit_is_exact_for_one_gateway(link: NatsLink) -> None:
    """A single gateway accepts no job above a tenant's limit, even if it does not count the jobs each time."""
    queue = NatsResponseJobs(link.response_jobs, limit=40)
    for _ in range(40):
        await queue.submit(job(), soon())
    with pytest.raises(RateLimited, match="40 responses of your tenant wait or run"):
        await queue.submit(job(), soon())


async def test_a_job_that_is_too_large_is_refused(link: NatsLink) -> None:
    """A job that is too large is refused, and nothing is queued."""
    queue = NatsResponseJobs(link.response_jobs, limit=2)
    with pytest.raises(PayloadTooLarge):
        await queue.submit(job(body=b"".join(new_name().encode() for _ in range(90_000))), soon())
    assert await queue.take(0.2) is None


async def test_a_job_of_a_silent_gateway_is_delivered_again(link: NatsLink) -> None:
    """A job of a silent gateway is delivered again after six seconds, without a limit of deliveries."""
    jetstream = await link.response_jobs()
    consumer = await jetstream.consumer_info(response_keys.RESPONSE_JOB_STREAM, response_keys.RESPONSE_RUNNERS)
    assert (consumer.config.ack_wait, consumer.config.max_deliver) == (6.0, -1)
