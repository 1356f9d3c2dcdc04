"""A route selects a deployment, and another deployment after a failure."""

import asyncio
import collections
import contextlib
import time
from collections.abc import Callable

import pytest
from causeway_testing.generator import CONVERSATION_EVENTS, FakeModel, deployed
from causeway_testing.model_answers import FAULTS, refusal, stream
from causeway_testing.model_server import ModelServer as Stub
from causeway_testing.servers import eventually
from generator.domain import ChatMessage, Conversation, Event, EventKind, OpenAIRequest, Prompt
from generator.openai.reply import Limits
from generator.routing.attempts import Retries
from generator.routing.circuit_breaker import State
from generator.routing.deployment import Deployment
from generator.routing.route import UNBOUNDED, Route
from opentelemetry import trace
from opentelemetry.context import Context
from servicekit import telemetry
from servicekit.deadline import Deadline
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    InvalidRequest,
    RateLimited,
    Unavailable,
    UpstreamRejected,
)
from structlog.testing import capture_logs

MakeRoute = Callable[..., Route]
MakeDeployment = Callable[..., Deployment]
PROMPT = Conversation((ChatMessage("user", "Hi"),))
START = Event(EventKind.START)
DOWN = Unavailable("down")


def rejected(status: int, retry_after: float | None = None) -> UpstreamRejected:
    return UpstreamRejected("no", status=status, body=f"body {status}", retry_after=retry_after)


async def ask(route: Route, prompt: Prompt = PROMPT, deadline: Deadline = UNBOUNDED) -> list[Event]:
    return [event async for event in route.generate(prompt, deadline)]


async def failure(route: Route, deadline: Deadline = UNBOUNDED) -> CausewayError:
    with pytest.raises(CausewayError) as caught:
        await ask(route, deadline=deadline)
    return caught.value


def idle(*deployments: Deployment) -> bool:
    return all((deployment.slots.busy, deployment.slots.waiting) == (0, 0) for deployment in deployments)


@pytest.mark.parametrize("members", [b'{"top_p":1e400}', b'{"seed":%b}' % (b"1" * 5000)], ids=["float", "int"])
async def test_a_number_out_of_range_is_a_bad_request(route: MakeRoute, members: bytes) -> None:
    """A number out of range is refused without calling a deployment, in a request and in a conversation."""
    model = FakeModel("a")
    for prompt in (OpenAIRequest(members), Conversation(PROMPT.messages, parameters_json=members)):
        with pytest.raises(InvalidRequest):
            await ask(route(model), prompt)
    assert model.prompts == []


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        DeadlineExceeded("slow"),
        RateLimited("busy"),
        rejected(500),
        rejected(408),
        rejected(429, 3),
        rejected(401),
        rejected(403),
        rejected(404),
    ],
)
async def test_the_next_deployment_answers_after_a_failure(route: MakeRoute, error: CausewayError) -> None:
    """After an error that is not the caller's, the next deployment answers, even after a START event. The caller
    gets one START event, and the error is logged.
    """
    first, second = FakeModel("a", [START, error]), FakeModel("b")
    with capture_logs() as log:
        assert await ask(route(first, second, tiers=True)) == list(CONVERSATION_EVENTS)
    assert (len(first.prompts), len(second.prompts)) == (1, 1)
    assert [(entry["deployment"], entry["error"]) for entry in log] == [("a", error.message)]


@pytest.mark.parametrize("error", [InvalidRequest("bad", field="x"), rejected(400), rejected(422)])
async def test_an_error_of_the_caller_is_not_retried(route: MakeRoute, error: CausewayError) -> None:
    """An error of the caller is raised unchanged, and no other deployment is called."""
    second = FakeModel("b")
    assert await failure(route(FakeModel("a", [error]), second, tiers=True, retries=Retries())) is error
    assert second.prompts == []


async def test_failures_within_one_trace_count_as_one(route: MakeRoute) -> None:
    """All failures within one trace count as one for the circuit. Another trace's failure counts as another."""
    only = deployed(FakeModel("a", [DOWN]), failures=2)
    model = route(only, retries=Retries(maximum=1))
    with trace.use_span(telemetry.unrecorded(Context())):
        assert [await failure(model), await failure(model)] == [DOWN, DOWN]
    assert only.circuit.admits
    with trace.use_span(telemetry.unrecorded(Context())):
        assert await failure(model) is DOWN
    assert only.circuit.state is State.OPEN


async def test_a_stream_that_fails_after_a_text_is_not_retried(route: MakeRoute) -> None:
    """A stream that fails after a text yields its earlier events and then raises the error."""
    first, second = FakeModel("a", [START, Event(EventKind.TEXT, text="Good"), DOWN]), FakeModel("b")
    events = route(first, second, tiers=True, retries=Retries()).generate(PROMPT)
    assert [(await anext(events)).text for _ in range(2)] == ["", "Good"]
    with pytest.raises(Unavailable):
        await anext(events)
    assert (len(first.prompts), second.prompts) == (1, [])


async def test_a_deployment_is_called_again_within_the_limits(
    stub: Stub, route: MakeRoute, deployment: MakeDeployment
) -> None:
    """A deployment is called again up to the limit, with pauses. Then its error is raised."""
    only = deployment(stub, failures=100)
    stub.script(refusal(500, "a"), refusal(503, "b"), stream(["ok"]))
    events = await ask(route(only, retries=Retries(maximum=2)))
    assert [event.text for event in events if event.kind is EventKind.TEXT] == ["ok"]
    first, second, third = (request.at for request in stub.requests)
    assert second - first >= 0.1
    assert third - second >= 0.2
    stub.requests.clear()
    stub.script(*(refusal(500, str(number)) for number in range(4)))
    error = await failure(route(only, retries=Retries(maximum=2)))
    assert isinstance(error, UpstreamRejected)
    assert '"2"' in error.body
    assert len(stub.requests) == 3
    assert idle(only)


@pytest.mark.parametrize(
    ("fault", "retries", "seconds"),
    [
        ("fault-500", Retries(maximum=9, within=0.05), 60),  # the pause exceeds the time for retries
        ("fault-503", Retries(maximum=9, within=1.0), 60),  # the server asks for a longer pause
        ("fault-503", Retries(maximum=9), 1.5),  # the pause exceeds the deadline
        ("fault-hang-before", Retries(maximum=9), 60),  # a time-out is not repeated
        ("fault-429", Retries(maximum=9), 60),  # a rate limit is not repeated
    ],
)
async def test_retries_have_limits(
    stub: Stub, route: MakeRoute, deployment: MakeDeployment, fault: str, retries: Retries, seconds: float
) -> None:
    """A request is not repeated if the pause exceeds a limit, or after a time-out or a rate limit."""
    await failure(route(deployment(stub, fault), retries=retries), Deadline.after(seconds))
    assert len(stub.requests) == 1


async def test_a_rate_limit_is_passed_on(route: MakeRoute) -> None:
    """If every deployment fails, a rate limit is raised with its status and body and the shortest retry time."""
    models = [
        FakeModel(name, [error]) for name, error in (("a", rejected(429, 9)), ("b", rejected(429, 4)), ("c", DOWN))
    ]
    error = await failure(route(*models, tiers=True))
    assert isinstance(error, UpstreamRejected)
    assert (error.status, error.retry_after, error.body) == (429, 4, "body 429")


@pytest.mark.parametrize(("errors", "status"), [((404, 503), 503), ((503, 404), 503), ((401, 404), 401)])
async def test_a_fault_has_priority_over_a_wrong_key_or_model(
    route: MakeRoute, errors: tuple[int, int], status: int
) -> None:
    """If every deployment fails, the error of a deployment whose key and model are right is raised, in any order.
    A wrong key or model is not repeated, and does not open the circuit.
    """
    first, second = (FakeModel(name, [rejected(error)]) for name, error in zip("ab", errors, strict=True))
    deployments = [deployed(model, failures=1) for model in (first, second)]
    error = await failure(route(*deployments, tiers=True))
    assert isinstance(error, UpstreamRejected)
    assert error.status == status
    assert [len(model.prompts) for model in (first, second)] == [1, 1]
    assert [deployment.circuit.state is State.OPEN for deployment in deployments] == [
        code == 503 for code in errors
    ]


async def test_a_deployment_with_an_open_circuit_is_not_called(route: MakeRoute) -> None:
    """A deployment with an open circuit is not called. If all circuits are open, the error has a retry time."""
    first = deployed(FakeModel("a", [DOWN]), failures=2, seconds=600)
    second = FakeModel("b")
    both = route(first, second, tiers=True)
    for _ in range(5):
        await ask(both)
    assert isinstance(first.model, FakeModel)
    assert (len(first.model.prompts), len(second.prompts)) == (2, 5)
    error = await failure(route(first))
    assert isinstance(error, Unavailable)
    assert error.retry_after is not None
    assert 300 < error.retry_after <= 600
    assert "'public'" in error.message


async def test_a_deployment_that_recovers_is_used_again(
    stub: Stub, route: MakeRoute, deployment: MakeDeployment
) -> None:
    """After the circuit's pause a successful request closes it."""
    only = deployment(stub, failures=1, seconds=60)
    stub.script(FAULTS["fault-500"]())
    await failure(route(only))
    assert only.circuit.state is State.OPEN
    only.circuit._clock = lambda: time.monotonic() + 60
    await ask(route(only))
    assert only.circuit.state.value == "closed"


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_stream_that_does_not_begin_in_time_goes_to_the_next_deployment(
    route: MakeRoute, streamed: bool
) -> None:
    """A stream without a text in time goes to the next deployment. An unstreamed answer has no such limit."""
    slow, second = deployed(FakeModel("a", [START, 0.3, *CONVERSATION_EVENTS]), first_token=0.1), FakeModel("b")
    prompt = OpenAIRequest(b'{"stream": %s}' % (b"true" if streamed else b"null"))
    await ask(route(slow, second, tiers=True), prompt)
    assert len(second.prompts) == int(streamed)
    assert idle(slow)
    error = await failure(route(slow)) if streamed else None
    assert error is None or "did not begin to answer within 0.1 s" in error.message


async def test_load_follows_weights(route: MakeRoute) -> None:
    """Idle deployments are chosen by weight, busy ones by their load for their weight."""
    first, second = (deployed(FakeModel(name, [START, 1.0])) for name in "ab")
    both = route(first, second, weights=(3, 1))
    for _ in range(200):
        with contextlib.suppress(StopAsyncIteration):
            async with contextlib.aclosing(both.generate(PROMPT)) as events:
                task = asyncio.ensure_future(anext(events))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
    counts = [len(deployment.model.prompts) for deployment in (first, second)]  # type: ignore[attr-defined]  # the fakes
    assert sum(counts) == 200
    assert 120 < counts[0] < 180
    tasks = [asyncio.create_task(ask(both)) for _ in range(40)]
    await asyncio.sleep(0.05)
    assert (first.slots.busy, second.slots.busy) == (30, 10)
    await asyncio.gather(*tasks)
    assert idle(first, second)


async def test_the_second_tier_answers_if_the_first_is_full(route: MakeRoute) -> None:
    """The second tier answers if the first one is full."""
    first, second = deployed(FakeModel("a", [0.05, START]), slots=1, queue=1), deployed(FakeModel("b"))
    both = route(first, second, tiers=True)
    await asyncio.gather(*(ask(both) for _ in range(3)))
    assert [len(deployment.model.prompts) for deployment in (first, second)] == [2, 1]  # type: ignore[attr-defined]  # the fakes


async def test_a_free_slot_takes_precedence_over_the_weight(route: MakeRoute) -> None:
    """A request uses a free deployment before it waits for a heavier one of the same tier."""
    first, second = (
        deployed(FakeModel("a", [0.05]), slots=1, queue=9),
        deployed(FakeModel("b", [0.05]), slots=4, queue=9),
    )
    both = route(first, second, weights=(100, 1))
    tasks = [asyncio.create_task(ask(both)) for _ in range(5)]
    await asyncio.sleep(0.01)
    assert (first.slots.busy, first.slots.waiting, second.slots.busy) == (1, 0, 4)
    await asyncio.gather(*tasks)


async def test_a_request_to_full_deployments_is_refused_at_once(route: MakeRoute) -> None:
    """A request to full deployments is refused at once with a retry time."""
    only = deployed(FakeModel("a", [600.0]), slots=1, queue=1)
    tasks = [asyncio.create_task(ask(route(only))) for _ in range(2)]
    await asyncio.sleep(0.01)
    error = await failure(route(only))
    assert isinstance(error, RateLimited)
    assert error.retry_after is not None
    assert error.retry_after >= 1
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert idle(only)


async def test_a_deadline_that_passes_in_the_queue_is_not_a_rate_limit(route: MakeRoute) -> None:
    """A deadline that passes in the queue raises DeadlineExceeded, not RateLimited."""
    only = deployed(FakeModel("a", [600.0]), slots=1, queue=1)
    task = asyncio.create_task(ask(route(only)))
    await asyncio.sleep(0.01)
    assert isinstance(await failure(route(only), Deadline.after(0.05)), DeadlineExceeded)
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("fault", ["fault-hang-before", "fault-hang-mid"])
async def test_a_cancelled_request_closes_the_connection(
    stub: Stub, route: MakeRoute, deployment: MakeDeployment, streamed: bool, fault: str
) -> None:
    """A cancelled request closes the connection to the server, before and after the first token."""
    only = deployment(stub, fault, limits=Limits())
    prompt = OpenAIRequest(b'{"model":"public","stream":%s}' % (b"true" if streamed else b"false"))
    task = asyncio.create_task(ask(route(only), prompt))
    await eventually(lambda: bool(stub.requests))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait({task})
    assert idle(only)
    await eventually(lambda: stub.requests[0].closed_at is not None, every=0.002)
    assert only.circuit.state is State.CLOSED


async def test_a_cancelled_request_never_reaches_the_server(
    stub: Stub, route: MakeRoute, deployment: MakeDeployment
) -> None:
    """A request that is cancelled in the queue does not reach the server."""
    only = deployment(stub, "fault-hang-before", limits=Limits(), slots=1, queue=5)
    tasks = [asyncio.create_task(ask(route(only))) for _ in range(3)]
    await eventually(lambda: bool(stub.requests) and only.slots.waiting == 2)
    tasks[1].cancel()
    await asyncio.wait({tasks[1]})
    assert (only.slots.busy, only.slots.waiting) == (1, 1)
    tasks[0].cancel()
    await eventually(lambda: len(stub.requests) == 2)
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert idle(only)
    assert len(stub.requests) == 2


async def test_no_slot_and_no_connection_stays_busy(
    stub: Stub, other: Stub, route: MakeRoute, deployment: MakeDeployment
) -> None:
    """After any mix of answers, faults and cancellations, no slot and no connection is busy."""
    limits = Limits(connect=1.0, first_byte=0.1, idle=0.1, max_bytes=100_000)
    names = ["stub", *(name for name in FAULTS if "huge" not in name)]
    first = [deployment(stub, name, limits=limits, slots=2, queue=1, failures=3, seconds=1) for name in names]
    last = deployment(other, limits=limits, slots=3, queue=2)
    ends: collections.Counter[str] = collections.Counter()

    async def visit(number: int) -> None:
        one = route(first[number % len(first)], last, tiers=True, retries=Retries(maximum=1, within=0.3))
        try:
            await ask(one, deadline=Deadline.after(2))
            ends["whole"] += 1
        except CausewayError as error:
            ends[type(error).__name__] += 1

    tasks = []
    for number in range(300):
        tasks.append(asyncio.create_task(visit(number)))
        if number % 3 == 0:
            await asyncio.sleep(0.002)
        if number % 5 == 0:
            tasks[number * 7 % len(tasks)].cancel()
    await asyncio.wait(tasks)
    assert not [task for task in tasks if not task.cancelled() and task.exception()]
    assert ends["whole"] > 20
    assert len(ends) > 3
    assert idle(*first, last)
    # Idle connections may be kept, but none is within an answer.
    await eventually(
        lambda: all(request.finished_at or request.closed_at for request in (*stub.requests, *other.requests))
    )


async def test_the_window_is_the_smallest_that_is_known(route: MakeRoute) -> None:
    """The window is the configured window, or else the smallest known window of the deployments."""
    models = FakeModel("a", window=0), FakeModel("b", window=500), FakeModel("c", window=300)
    assert await route(*models).context_window() == 300
    assert await route(models[0]).context_window() == 0
    assert await route(*models, window=100).context_window() == 100


async def test_a_route_is_ready_with_one_ready_deployment(route: MakeRoute) -> None:
    """A route is ready if a deployment is reachable and its circuit is not open."""
    gone, there = deployed(FakeModel(is_ready=False)), deployed(FakeModel(), failures=1)
    assert not await route(gone).ready()
    assert await route(gone, there).ready()
    there.circuit.call().failed()
    assert not await route(gone, there).ready()
