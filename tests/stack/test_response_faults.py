"""Responses of the Responses API survive faults of the processes that generate them.

In each round, 32 background responses and 32 responses with waiting clients run. Readers connect and disconnect,
and two responses are cancelled. At a random moment, one process is killed, frozen or stopped.
CAUSEWAY_RESPONSE_ROUNDS is the number of rounds (3), and CAUSEWAY_RESPONSE_SEED is the seed of the random
decisions.
"""

import asyncio
import collections
import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_testing.model_server import ModelServer
from causeway_testing.parts import Part, parts

pytestmark = pytest.mark.timeout(0)  # the duration depends on the number of rounds

ROUNDS = int(os.environ.get("CAUSEWAY_RESPONSE_ROUNDS", "3"))
SEED = int(os.environ.get("CAUSEWAY_RESPONSE_SEED", str(time.time_ns())))
RUNNING = 32
READERS = 8
CANCELLED = 2
TOKENS, PACE = 12, 0.1
TEXT = "".join(f"word{number} " for number in range(TOKENS))
BEGIN_SECONDS = 1.0
FAULT_SECONDS = 2.0
FROZEN_SECONDS = 8.0
END_SECONDS = 60.0
"""The time limit for a response to end after a fault. An idle machine needs 10 s, a busy one longer."""
REPLAYED = 6
"""The number of responses of a round that are read again from every cursor. The others are read from one cursor."""
CHECK_CONCURRENCY = 16
PATH = "/v1/responses"
FINAL_STATES = ("completed", "failed", "incomplete", "cancelled")


@dataclass
class Answer:
    """A response, and the events that clients read of it.

    Attributes:
        name: The id of the response.
        background: Whether it runs without a waiting client.
        cancelled: Whether a gateway confirmed its cancellation.
        reads: For each client, the number of the event before the first one that it read, and its events.
    """

    name: str
    background: bool
    cancelled: bool = False
    reads: list[tuple[int, str]] = field(default_factory=list)


class Round:
    """One round.

    Args:
        processes: The processes by name.
        clients: An HTTP client for each gateway.
        rng: The source of random decisions.
        counts: The number of each outcome.
    """

    def __init__(
        self,
        processes: dict[str, Part],
        clients: Sequence[httpx.AsyncClient],
        rng: random.Random,
        counts: collections.Counter[str],
    ) -> None:
        self._parts, self._clients, self._rng, self._counts = processes, clients, rng, counts
        self._answers: list[Answer] = []
        self._has_begun = asyncio.Event()
        self._fault = ""

    async def run(self) -> None:
        """Start the responses, cause a fault, and check every response after the recovery."""
        async with asyncio.TaskGroup() as group:
            for number in range(2 * RUNNING):
                group.create_task(self._answer(background=number % 2 == 0))
            for _ in range(READERS):
                group.create_task(self._read_some())
            for _ in range(CANCELLED):
                group.create_task(self._cancel_one())
            group.create_task(self._cause_fault())
        replayed = self._rng.sample(self._answers, REPLAYED)
        checks = [(answer, answer in replayed, self._rng.random()) for answer in self._answers]
        for begin in range(0, len(checks), CHECK_CONCURRENCY):
            async with asyncio.TaskGroup() as group:
                for answer, all_cursors, cursor in checks[begin : begin + CHECK_CONCURRENCY]:
                    group.create_task(self._check(answer, all_cursors=all_cursors, cursor=cursor))

    async def _retry_until_result(self, ask: Callable[[httpx.AsyncClient], Awaitable[Any]], what: str) -> Any:
        """Repeat a request at random gateways until `ask` returns a result, and return the result."""
        end = time.monotonic() + END_SECONDS
        while True:
            with contextlib.suppress(httpx.TransportError):
                if (found := await ask(self._rng.choice(self._clients))) is not None:
                    return found
            assert time.monotonic() < end, f"{what} after {self._fault}"
            await asyncio.sleep(0.1)

    async def _cause_fault(self) -> None:
        await asyncio.sleep(self._rng.uniform(0, FAULT_SECONDS))
        part = self._parts[self._rng.choice(list(self._parts))]
        kind = self._rng.choice(("kill", "freeze", "stop"))
        self._fault = f"{kind} {part.name}"
        self._counts[self._fault] += 1
        if kind == "freeze":
            part.freeze()
            await asyncio.sleep(self._rng.uniform(0.2, FROZEN_SECONDS))
            part.thaw()
            return
        await part.stop(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        await asyncio.sleep(self._rng.uniform(0, 1))
        await part.start()

    async def _answer(self, *, background: bool) -> None:
        await asyncio.sleep(self._rng.uniform(0, BEGIN_SECONDS))
        await self._retry_until_result(self._start_background if background else self._stream, "no response begins")

    async def _start_background(self, client: httpx.AsyncClient) -> Answer | None:
        answer = await client.post(PATH, json={"model": "stub", "input": "When?", "background": True})
        if answer.status_code != 200:
            assert answer.status_code in (429, 503), answer.text
            return None
        return self._add(Answer(answer.json()["id"], background=True))

    async def _stream(self, client: httpx.AsyncClient) -> Answer | None:
        """Create a response, and read its stream until the end or until the connection breaks."""
        pieces: list[str] = []
        try:
            body = {"model": "stub", "input": "When?", "stream": True}
            async with client.stream("POST", PATH, json=body) as streamed:
                if streamed.status_code != 200:
                    return None
                async for piece in streamed.aiter_text():
                    pieces.append(piece)  # noqa: PERF401  # the pieces before a break are used
        except httpx.TransportError:
            if not (events := complete_events("".join(pieces))):
                return None
        else:
            events = complete_events("".join(pieces))
            if not is_stored(events[-1]):
                self._counts["answered, not stored"] += 1
                return Answer("", background=False)
        name = payload(events[0])["response"]["id"]
        return self._add(Answer(name, background=False, reads=[(-1, "".join(events))]))

    def _add(self, answer: Answer) -> Answer:
        self._answers.append(answer)
        self._has_begun.set()
        return answer

    async def _read_some(self) -> None:
        """Read the events of several responses, each from a random event on and for a random time."""
        await self._has_begun.wait()
        for _ in range(4):
            answer = self._rng.choice(self._answers)
            after, seconds = self._rng.randint(-1, 4), self._rng.uniform(0.2, 2)
            pieces: list[str] = []
            with contextlib.suppress(httpx.TransportError, TimeoutError):
                async with asyncio.timeout(seconds):
                    await follow(self._rng.choice(self._clients), answer.name, after, pieces)
            answer.reads.append((after, "".join(complete_events("".join(pieces)))))

    async def _cancel_one(self) -> None:
        """Cancel a random background response, which may already have ended."""
        await self._has_begun.wait()
        await asyncio.sleep(self._rng.uniform(0, FAULT_SECONDS))
        background = [answer for answer in self._answers if answer.background]
        if background:
            answer = self._rng.choice(background)
            state = await self._retry_until_result(
                partial(cancel, name=answer.name), f"{answer.name} is not cancelled"
            )
            answer.cancelled = state["status"] == "cancelled"

    async def _check(self, answer: Answer, *, all_cursors: bool, cursor: float) -> None:
        """Check that no event is lost, repeated or out of order, and that all replays are equal."""

        async def final_state(client: httpx.AsyncClient) -> Any:
            found = await client.get(f"{PATH}/{answer.name}")
            assert found.status_code in (200, 404, 503), found.text
            if found.status_code == 404:
                return {}
            return found.json() if found.status_code == 200 and found.json()["status"] in FINAL_STATES else None

        if not answer.name:
            return
        state = await self._retry_until_result(final_state, f"{answer.name} does not end")
        if not state:
            # The gateway cannot store a response that begins while NATS is unavailable.
            assert not answer.background, f"{answer.name} is lost after {self._fault}"
            assert "nats" in self._fault, f"{answer.name} is lost after {self._fault}"
            self._counts["broken, not stored"] += 1
            return
        events = await self._retry_until_result(partial(replay, name=answer.name, after=-1), "no replay")
        self._counts[f"{'background' if answer.background else 'foreground'} {state['status']}"] += 1
        assert [payload(event)["sequence_number"] for event in events] == list(range(len(events)))
        last, status = payload(events[-1]), state["status"]
        assert not answer.cancelled or status == "cancelled", f"{answer.name} continues after {self._fault}"
        kind = "failed" if status == "cancelled" else status
        assert (last["type"], last["response"]["status"]) == (f"response.{kind}", status)
        text = "".join(payload(each)["delta"] for each in events if "output_text.delta" in each)
        assert TEXT.startswith(text)
        assert text == TEXT or state["status"] != "completed"
        assert text == "".join(part["text"] for item in state["output"] for part in item["content"])
        for after, events_read in answer.reads:
            assert "".join(events[after + 1 :]).startswith(events_read), (self._fault, answer.name, after)
        cursors = range(-1, len(events)) if all_cursors else [int(cursor * len(events)) - 1]
        for after in cursors:
            again = await self._retry_until_result(partial(replay, name=answer.name, after=after), "no replay")
            assert again == events[after + 1 :]
            self._counts["replays"] += 1


def client_of(gateway: Part) -> httpx.AsyncClient:
    """Return an HTTP client of a gateway without a limit of connections."""
    url, limits = f"http://127.0.0.1:{gateway.port}", httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=url, trust_env=False, timeout=END_SECONDS, limits=limits)


def complete_events(body: str) -> list[str]:
    """Return the complete events of a stream, without comments."""
    return [f"{block}\n\n" for block in body.split("\n\n")[:-1] if not block.startswith(":")]


def payload(event: str) -> Any:
    """Return the JSON payload of an event."""
    return json.loads(event.partition("data: ")[2])


def is_stored(event: str) -> bool:
    """Return whether the last event of a response shows that the response is stored."""
    return bool(payload(event).get("response", {}).get("store"))


async def follow(client: httpx.AsyncClient, name: str, after: int, pieces: list[str]) -> int:
    """Read the events after a number until the end of the stream, append the pieces to a list, and return the
    status.
    """
    query = {"stream": "true", "starting_after": str(after)}
    async with client.stream("GET", f"{PATH}/{name}", params=query) as streamed:
        if streamed.status_code == 200:
            async for piece in streamed.aiter_text():
                pieces.append(piece)  # noqa: PERF401  # as above
        return streamed.status_code


async def cancel(client: httpx.AsyncClient, name: str) -> Any:
    """Cancel a response, and return its state, or None if this is temporarily impossible."""
    found = await client.post(f"{PATH}/{name}/cancel")
    assert found.status_code in (200, 409, 503), found.text
    return found.json() if found.status_code == 200 else None


async def replay(client: httpx.AsyncClient, name: str, after: int) -> list[str] | None:
    """Return the events after a number, or None if they are temporarily unavailable."""
    pieces: list[str] = []
    return complete_events("".join(pieces)) if await follow(client, name, after, pieces) == 200 else None


async def test_no_event_is_lost(tmp_path: Path) -> None:
    """Although processes are killed, frozen or stopped, each accepted response ends, and all readers get the same
    events.
    """
    rng, counts = random.Random(SEED), collections.Counter[str]()
    settings = {"BACKGROUND_PER_TENANT": "1000", "SHUTDOWN_GRACE": "5"}
    begin, rounds = time.monotonic(), 0
    async with contextlib.AsyncExitStack() as stack:
        model = await stack.enter_async_context(ModelServer.started(tokens=TOKENS, pace=PACE))
        processes = await stack.enter_async_context(parts(tmp_path, model.url, **settings))
        clients = [
            await stack.enter_async_context(client_of(part))
            for name, part in processes.items()
            if "gateway" in name
        ]
        try:
            for _ in range(ROUNDS):
                await Round(processes, clients, rng, counts).run()
                rounds += 1
        finally:
            print(f"seed {SEED}: {rounds} rounds in {time.monotonic() - begin:.0f} s: {dict(counts)}")  # noqa: T201  # the result
    assert counts["background completed"]
    assert counts["foreground completed"]
