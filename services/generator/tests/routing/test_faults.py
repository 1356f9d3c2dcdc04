"""Faults of model servers: each causes its error in time and leaves nothing busy."""

import asyncio
from collections.abc import Callable

import pytest
from causeway_testing.generator import limits_for
from causeway_testing.model_answers import DONE, FAULTS, STREAM, Answer, Fault, chunk, sse
from causeway_testing.model_server import ModelServer as Stub
from causeway_testing.servers import eventually, free_ports
from generator.domain import ChatMessage, Conversation, OpenAIRequest, Prompt
from generator.routing.circuit_breaker import State
from generator.routing.deployment import Deployment
from generator.routing.route import Route
from servicekit.errors import CausewayError, DeadlineExceeded, Unavailable, UpstreamRejected

MakeRoute = Callable[..., Route]
MakeDeployment = Callable[..., Deployment]
PROMPTS: tuple[Prompt, ...] = (
    Conversation((ChatMessage("user", "Hi"),)),
    OpenAIRequest(b'{"model":"public","stream":true}'),
)
IN_TIME = 60.0  # seconds; the time-outs of these tests are 1 s


async def fault_of(route: Route, prompt: Prompt) -> tuple[int, CausewayError]:
    """Return the number of events, and the error after them."""
    count = 0
    try:
        async with asyncio.timeout(IN_TIME):
            async for _ in route.generate(prompt):
                count += 1
    except CausewayError as error:
        return count, error
    raise AssertionError("the answer ended without an error")


@pytest.mark.parametrize("prompt", PROMPTS, ids=["conversation", "request"])
@pytest.mark.parametrize(
    ("fault", "has_events", "error"),
    [
        ("fault-hang-before", False, DeadlineExceeded),
        ("fault-close-before", False, Unavailable),
        ("fault-hang-mid", True, DeadlineExceeded),
        ("fault-close-mid", True, Unavailable),
        ("fault-reset-mid", True, Unavailable),
        ("fault-ends-early", True, Unavailable),
        ("fault-broken-json", True, Unavailable),
        ("fault-half-line", True, Unavailable),
        ("fault-huge-chunk", True, Unavailable),
        ("fault-huge-body", False, Unavailable),
        ("fault-400", False, UpstreamRejected),
        ("fault-429", False, UpstreamRejected),
        ("fault-500", False, UpstreamRejected),
        ("fault-503", False, UpstreamRejected),
    ],
)
async def test_a_fault_raises_its_error_and_leaves_nothing_busy(
    stub: Stub,
    route: MakeRoute,
    deployment: MakeDeployment,
    prompt: Prompt,
    fault: str,
    has_events: bool,
    error: type[CausewayError],
) -> None:
    """A fault leaves no slot and no connection busy. The circuit counts only faults of the server, and the next
    request succeeds.
    """
    only = deployment(stub, failures=1, limits=limits_for(fault))
    stub.script(FAULTS[fault]())
    count, raised = await fault_of(route(only), prompt)
    assert type(raised) is error
    assert bool(count) is has_events
    if isinstance(raised, UpstreamRejected):
        times = {429: 7, 503: 2}
        assert raised.status == int(fault.removeprefix("fault-"))
        assert raised.retry_after == times.get(raised.status)
    refused = fault in ("fault-400", "fault-429")
    assert only.circuit.state is (State.CLOSED if refused else State.OPEN)
    assert (only.slots.busy, only.slots.waiting) == (0, 0)
    # A connection is kept for the next request only if its answer was read completely.
    (request,) = stub.requests
    await eventually(lambda: bool(request.finished_at or request.closed_at))
    await eventually(lambda: stub.open_connections <= (0 if request.closed_at else 1))
    again = route(deployment(stub))
    assert [event async for event in again.generate(prompt)]


async def test_a_refused_connection_is_unavailable_at_once(route: MakeRoute, deployment: MakeDeployment) -> None:
    """A refused connection raises Unavailable with a retry time, and opens the circuit."""
    only = deployment(f"http://127.0.0.1:{free_ports(1)[0]}/v1", failures=1)
    count, raised = await fault_of(route(only), PROMPTS[0])
    assert (count, type(raised)) == (0, Unavailable)
    assert raised.retry_after is not None
    assert (only.slots.busy, only.circuit.state) == (0, State.OPEN)


@pytest.mark.parametrize("head", [b": waiting\n\n", b""])
async def test_the_head_of_a_response_is_not_the_first_token(
    stub: Stub, route: MakeRoute, deployment: MakeDeployment, head: bytes
) -> None:
    """The time-out for the first token applies until the first token, even after the head of the response."""
    steps = (head, 0.3, sse(chunk({"content": "a"}, "stop")), DONE) if head else (0.3, sse(chunk({}, "stop")), DONE)
    stub.script(Answer(steps, content_type=STREAM), Answer((Fault.HANG,), content_type=STREAM))
    only = deployment(stub, limits=limits_for("fault-hang-before"))
    assert [event async for event in route(only).generate(PROMPTS[0])]
    count, raised = await fault_of(route(only), PROMPTS[0])
    assert (count, type(raised)) == (0, DeadlineExceeded)
    assert "did not begin to answer" in raised.message


async def test_large_pieces_under_the_limit_pass(stub: Stub, route: MakeRoute, deployment: MakeDeployment) -> None:
    """A large piece below the limit is not a fault."""
    text = "x" * 1_000_000
    stub.script(Answer((sse(chunk({"content": text}, "stop")), DONE), content_type=STREAM))
    events = [event async for event in route(deployment(stub)).generate(PROMPTS[0])]
    assert text in [event.text for event in events]
