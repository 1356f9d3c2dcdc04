"""Admission control: requests are admitted, queued or refused. test_middleware.py tests the limits of bodies."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from causeway_testing.clock import virtual_time
from causeway_testing.servers import eventually, measured
from gateway.dialects.registry import registrations
from gateway.domain import Done
from gateway.frontends.profiles import Frontend
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.routes.table import route_table
from gateway.server.admission import Admission, expected_wait
from gateway.server.metrics import Metrics
from gateway.server.request_state import state_of
from gateway.settings import Settings
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from servicekit.errors import CausewayError, Unavailable
from starlette.types import Receive, Scope, Send

CHAT, UPLOAD = "/chat", "/documents"
ROUTES = route_table(registrations())


class Service:
    """The application behind the admission control. It responds when a test opens a gate, or after some seconds.

    Attributes:
        running: The number of running requests.
        max_running: The highest number of concurrent requests.
        recorded_later: Whether the requests accept background responses.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        self.recorded_later = False
        self.running = self.max_running = 0
        self.gates: list[asyncio.Event] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.running += 1
        self.max_running = max(self.max_running, self.running)
        try:
            if self.seconds is None:
                gate = asyncio.Event()
                self.gates.append(gate)
                await gate.wait()
            else:
                await asyncio.sleep(self.seconds)
            state_of(scope).done = Done(())
            state_of(scope).recorded_later = self.recorded_later
        finally:
            self.running -= 1


def admission(service: Service, slots: int, **others: Any) -> Admission:
    settings: dict[str, Any] = {"limit": 1000, "wait": 10.0, "timeout": 100.0} | others
    return Admission(service, Metrics(), slots=slots, **settings)


async def ask(
    app: Admission, path: str = CHAT, *, batch: bool = False, method: str = "POST", **headers: str
) -> None:
    """Send one request."""
    listed = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": listed}
    state_of(scope).frontend = Frontend(is_batch=batch)
    with contextlib.suppress(CausewayError):
        state_of(scope).route = ROUTES.find(path, method)
    await app(scope, None, None)  # type: ignore[arg-type]  # never used


def start(app: Admission, count: int, path: str = CHAT, **others: Any) -> list["asyncio.Task[None]"]:
    return [asyncio.create_task(ask(app, path, **others)) for _ in range(count)]


async def ended(*tasks: "asyncio.Task[None]") -> list[bool]:
    """Wait for the requests. Return whether each request was served."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(result is None or isinstance(result, Unavailable) for result in results), results
    return [result is None for result in results]


async def run_ready_tasks() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_requests_without_a_slot_wait_in_order() -> None:
    """Up to a quarter of the number of slots, requests wait in order. Further requests are refused at once."""
    service = Service()
    app = admission(service, 8)
    tasks = start(app, 12)
    await run_ready_tasks()
    assert [task.done() for task in tasks] == [False] * 10 + [True] * 2
    assert service.running == 8
    service.gates[0].set()
    await run_ready_tasks()
    assert (service.running, len(service.gates)) == (8, 9)
    while service.running:
        for gate in service.gates:
            gate.set()
        await run_ready_tasks()
    assert await ended(*tasks) == [True] * 10 + [False] * 2
    assert service.max_running == 8


async def test_batch_requests_leave_slots_for_interactive_requests() -> None:
    """Batch requests use at most three quarters of the slots and never wait."""
    service = Service()
    app = admission(service, 8)
    batch = [*start(app, 3, UPLOAD), *start(app, 3, x_priority="batch"), *start(app, 3, batch=True)]
    await run_ready_tasks()
    assert [task.done() for task in batch] == [False] * 6 + [True] * 3
    interactive = start(app, 4)
    await run_ready_tasks()
    assert service.running == 8
    assert not any(task.done() for task in interactive)
    for gate in service.gates:
        gate.set()
    await run_ready_tasks()
    for gate in service.gates:
        gate.set()
    assert await ended(*interactive) == [True] * 4
    assert await ended(*batch) == [True] * 6 + [False] * 3


async def test_a_batch_request_does_not_overtake_waiting_requests() -> None:
    """A batch request is refused while another request waits, even if a slot of its share is free."""
    service = Service()
    app = admission(service, 1)
    interactive = start(app, 2)
    await run_ready_tasks()
    with pytest.raises(Unavailable):
        await ask(app, UPLOAD)
    for _ in interactive:
        for gate in service.gates:
            gate.set()
        await run_ready_tasks()
    assert await ended(*interactive) == [True, True]


async def test_reading_requests_need_no_slot() -> None:
    """Requests that only read need no slot, but count towards the limit of all requests."""
    service = Service()
    app = admission(service, 1, limit=4)
    tasks = [*start(app, 2), *start(app, 2, "/jobs", method="GET")]
    await run_ready_tasks()
    assert service.running == 3
    with pytest.raises(Unavailable, match="limit of concurrent requests"):
        await ask(app, "/jobs", method="GET")
    await complete_all(service, tasks)


async def complete_all(service: Service, tasks: list["asyncio.Task[None]"]) -> None:
    while not all(task.done() for task in tasks):
        for gate in service.gates:
            gate.set()
        await run_ready_tasks()
    assert all(await ended(*tasks))


@virtual_time
async def test_a_request_that_would_be_answered_too_late_is_refused() -> None:
    """A request is refused at once if the queue and the answer take longer than its client waits."""
    service = Service(0.2)
    app = admission(service, 4)
    await ask(app)  # measures the time of an answer
    tasks = start(app, 4)
    await run_ready_tasks()
    begin = time.perf_counter()
    for wait in ("199", "0", "1"):
        with pytest.raises(Unavailable, match="longer than the client waits"):
            await ask(app, x_envoy_expected_rq_timeout_ms=wait)
    assert time.perf_counter() == begin
    await asyncio.sleep(0.15)  # until the slots are about to become free
    tasks += start(app, 1, x_envoy_expected_rq_timeout_ms="nonsense")
    await run_ready_tasks()
    assert not tasks[-1].done()
    assert all(await ended(*tasks))


@virtual_time
async def test_a_request_after_a_burst_is_refused() -> None:
    """A request after a burst is refused, because all slots become free late and at the same time."""
    service = Service(0.4)
    app = admission(service, 8)
    await ask(app)
    tasks = start(app, 8)
    await asyncio.sleep(0.05)
    with pytest.raises(Unavailable, match="limit of concurrent answers"):
        await ask(app)
    await asyncio.sleep(0.25)
    late = start(app, 2)
    assert all(await ended(*tasks, *late))


ages = st.lists(st.floats(0, 5), min_size=1, max_size=12).map(lambda found: sorted(found, reverse=True))


@given(ages, st.integers(0, 11), st.floats(0.01, 5))
def test_the_expected_wait(ages: list[float], ahead: int, seconds: float) -> None:
    """The expected wait is positive, has an upper bound, and does not shrink with more requests ahead."""
    expected = expected_wait(ahead, ages, seconds, len(ages))
    assert 0 < expected <= max(seconds, seconds * (ahead + 1) / len(ages))
    if ahead < len(ages):
        assert expected >= max(0.0, seconds - ages[ahead])
        assert expected_wait(ahead + 1, ages, seconds, len(ages)) >= expected


@virtual_time
async def test_earlier_slow_answers_are_forgotten() -> None:
    """Earlier slow answers do not cause the refusal of a request while a slot is free."""
    service = Service(0.2)
    app = admission(service, 4)
    await ask(app)
    service.seconds = 0.0
    for _ in range(100):
        await ask(app, x_envoy_expected_rq_timeout_ms="100")
    service.seconds = 0.05
    tasks = start(app, 4, x_envoy_expected_rq_timeout_ms="5000")
    await asyncio.sleep(0.02)
    tasks += start(app, 1, x_envoy_expected_rq_timeout_ms="5000")
    assert all(await ended(*tasks))


@virtual_time
async def test_accepted_background_responses_do_not_count_as_answers() -> None:
    """The time in which a background response is accepted does not shorten the expected time of an answer."""
    service = Service(0.2)
    app = admission(service, 4)
    await ask(app)
    service.seconds, service.recorded_later = 0.0, True
    for _ in range(100):
        await ask(app)
    service.seconds, service.recorded_later = 0.2, False
    tasks = start(app, 4)
    await run_ready_tasks()
    with pytest.raises(Unavailable, match="longer than the client waits"):
        await ask(app, x_envoy_expected_rq_timeout_ms="199")
    assert all(await ended(*tasks))


@virtual_time
async def test_the_wait_is_limited() -> None:
    """A request waits for a slot no longer than the limit. No slot is lost."""
    service = Service()
    app = admission(service, 1, wait=0.05)
    tasks = start(app, 2)
    assert await ended(tasks[1]) == [False]
    await complete_all(service, tasks[:1])
    again = start(app, 1)
    await run_ready_tasks()
    await complete_all(service, again)


async def test_leaving_while_waiting_takes_no_slot() -> None:
    """A request whose client leaves the queue takes no slot, even if a slot becomes free at that moment."""
    service = Service()
    app = admission(service, 2)
    for gate_first in (False, True):
        tasks = start(app, 3)
        await run_ready_tasks()
        if gate_first:
            service.gates[-1].set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.wait([tasks[2]])
        await complete_all(service, tasks[:2])
        assert (app._running, len(app._waiting), service.running) == (0, 0, 0)


@given(st.lists(st.sampled_from(["ask", "batch", "end", "leave", "step"]), max_size=60), st.integers(1, 6))
@limits(max_examples=60)
def test_the_number_of_slots_is_constant(steps: list[str], slots: int) -> None:
    """The number of slots stays the same for every order of requests, ends and cancellations."""

    async def play() -> None:
        service = Service()
        app = admission(service, slots)
        tasks: list[asyncio.Task[None]] = []
        for at, step in enumerate(steps):
            if step in ("ask", "batch"):
                tasks += start(app, 1, UPLOAD if step == "batch" else CHAT)
            elif step == "end" and service.gates:
                service.gates[at % len(service.gates)].set()
            elif step == "leave" and tasks:
                tasks[at % len(tasks)].cancel()
            else:
                await asyncio.sleep(0)
            assert service.running <= slots
        while not all(task.done() for task in tasks):
            for gate in service.gates:
                gate.set()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (app._running, len(app._waiting), app._concurrent) == (0, 0, 0)

    asyncio.run(play())


@virtual_time
async def test_accepted_requests_stay_fast_at_three_times_the_capacity() -> None:
    """At three times the capacity, accepted requests are nearly as fast as before. Others are refused at once."""
    seconds, slots = 0.2, 16
    app = admission(Service(seconds), slots)

    async def load(rate: float) -> tuple[list[float], list[float]]:
        accepted: list[float] = []
        refused: list[float] = []

        async def one() -> None:
            begin = time.perf_counter()
            try:
                await ask(app)
            except Unavailable:
                refused.append(time.perf_counter() - begin)
            else:
                accepted.append(time.perf_counter() - begin)

        begin, sent = time.perf_counter(), 0
        async with asyncio.TaskGroup() as group:
            while (now := time.perf_counter() - begin) < 2.0:
                while sent < now * rate:
                    group.create_task(one())
                    sent += 1
                await asyncio.sleep(0.005)
        return sorted(accepted), sorted(refused)

    capacity = slots / seconds
    normal, _ = await load(0.8 * capacity)
    overloaded, refused = await load(3 * capacity)
    assert len(overloaded) > 0.6 * 2.0 * capacity
    assert len(refused) > 2.0 * capacity
    assert overloaded[int(len(overloaded) * 0.95)] < 2.0 * normal[int(len(normal) * 0.95)]
    assert refused[-1] == 0


async def test_a_profile_can_be_for_batch_requests(fakes: Any, tmp_path: Any) -> None:
    """Requests of a batch profile are refused with 503 and counted, while other requests are answered."""

    def refusals(reason: str) -> float:
        name = "causeway_overload_refusals_total"
        return sum(value for labels, value in measured(name) if labels["causeway_reason"] == reason)

    measured("")
    before = refusals("batch")
    profile = "{name: nightly, mount: nightly, index: docs, dialect: 2024-04, priority: batch}"
    (tmp_path / "frontends.yaml").write_text(f"frontends: [{profile}]")
    fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
    gate = fakes.generator.gate = asyncio.Event()
    app = build_app(Settings(default_index="docs", max_answers=2), fakes.services())
    question = {"messages": [{"role": "user", "content": "When does the ferry leave?"}]}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://g") as http:
        post: Callable[[str], Any] = lambda path: http.post(path, json=question)  # noqa: E731  # short is clear here
        first = asyncio.ensure_future(post("/nightly/chat"))
        await eventually(lambda: len(fakes.generator.prompts) == 1)
        refused = await post("/nightly/chat")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "batch requests" in refused.json()["error"]
        second = asyncio.ensure_future(post("/chat"))
        await eventually(lambda: len(fakes.generator.prompts) == 2)
        gate.set()
        assert {(await first).status_code, (await second).status_code} == {200}
    assert refusals("batch") - before == 1
