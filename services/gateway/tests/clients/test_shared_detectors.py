"""The conditions under which the gateway runs the detectors of a policy itself."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from causeway.guardrails.v1 import guardrails_pb2 as pb
from causeway_testing.servers import eventually
from detection.moderation.thread_pool import ThreadPool
from detection.shared import digest
from gateway.clients import shared_detectors
from gateway.clients.local_detectors import LocalDetectors, LocalLibrary
from gateway.clients.shared_detectors import SharedDetectors
from gateway.domain import Action, Detector
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from structlog.testing import capture_logs

EMAIL = Detector("regex", Action.REDACT, params_json=b'{"regex":["email"]}')
WORDS = Detector("ban_substrings", Action.BLOCK, params_json=b'{"substrings":["secret"]}')
LIMITS = pb.JudgingLimits(longest_text=1000, held_back=100, held_whole=200, detections=10, seconds=1)


class Service:
    """A guardrails service that lists detectors.

    Attributes:
        digests: The digests by detector.
        limits: The limits of the service; None: an older service, which reports no limits.
        down: Whether calls fail with Unavailable.
        calls: The number of calls.
    """

    def __init__(self, **digests: str) -> None:
        self.digests = digests
        self.limits: pb.JudgingLimits | None = LIMITS
        self.down = False
        self.calls = 0

    async def list_detectors(self, deadline: Deadline) -> pb.ListDetectorsResponse:
        self.calls += 1
        if self.down:
            raise Unavailable("gone")
        detectors = [pb.Detector(detector_id=name, library_digest=digest) for name, digest in self.digests.items()]
        return pb.ListDetectorsResponse(detectors=detectors, limits=self.limits)


@asynccontextmanager
async def sharing(service: Service, *, age: float = 60.0) -> AsyncIterator[SharedDetectors]:
    workers = ThreadPool(1)
    known: Any = service
    try:
        async with SharedDetectors(known, workers, interval=0.01, age=age) as shared:
            yield shared
    finally:
        workers.close()


async def wait_until_compiled(service: Service, shared: SharedDetectors, detectors: Sequence[Detector]) -> None:
    """Wait until the gateway has the current list, and has compiled the detectors that it can compile."""
    shared.ready(detectors)
    for _ in range(2):  # the gateway requests the second list after it has processed the first one
        calls = service.calls
        await eventually(lambda calls=calls: service.calls > calls + 1)  # type: ignore[misc]  # bound now
        shared.ready(detectors)


@pytest.mark.parametrize("detectors", [[EMAIL], [EMAIL, WORDS]])
async def test_the_same_detectors_become_ready(detectors: list[Detector]) -> None:
    """Detectors of the same library become ready in the background. Until then, the service judges."""
    service = Service(regex=digest(), ban_substrings=digest())
    async with sharing(service) as shared:
        assert shared.ready(detectors) is None
        await eventually(lambda: shared.ready(detectors) is not None)
        assert shared.ready(detectors) is shared.ready(list(detectors))


def changed(change: Callable[[Service], None]) -> Service:
    service = Service(regex=digest(), ban_substrings=digest())
    change(service)
    return service


@pytest.mark.parametrize(
    ("service", "detectors"),
    [
        (Service(regex="other", ban_substrings=digest()), [EMAIL]),
        (Service(regex="", ban_substrings=digest()), [EMAIL, WORDS]),
        (Service(ban_substrings=digest()), [EMAIL]),
        (changed(lambda service: setattr(service, "limits", None)), [EMAIL]),
        (changed(lambda service: None), [EMAIL, replace(WORDS, requested=True)]),
        (changed(lambda service: None), [replace(EMAIL, params_json=b'{"regex":["("]}')]),
        (changed(lambda service: None), [replace(EMAIL, params_json=b'{"regex":["x[^y]{0,900}y"]}')]),
        (changed(lambda service: None), []),
    ],
    ids=["other-library", "replaced", "removed", "older-service", "requested", "wrong", "slow", "none"],
)
async def test_the_service_runs_all_other_detectors(service: Service, detectors: list[Detector]) -> None:
    """The service judges if a detector differs, is missing, is named by the request, is invalid, or is slow.

    It also judges if it reports no limits, or if the set has no detectors.
    """
    async with sharing(service) as shared:
        assert shared.ready([WORDS]) is None  # the first request with a policy causes the requests for the list
        await wait_until_compiled(service, shared, detectors)
        assert shared.ready(detectors) is None


async def test_the_service_judges_while_its_library_differs() -> None:
    """The gateway stops judging when the service's library changes, and continues when it is the same again."""
    service = Service(regex=digest())
    async with sharing(service) as shared:
        await eventually(lambda: shared.ready([EMAIL]) is not None)
        service.digests = {"regex": "newer"}
        await eventually(lambda: shared.ready([EMAIL]) is None)
        service.digests = {"regex": digest()}
        await eventually(lambda: shared.ready([EMAIL]) is not None)


async def test_changed_limits_compile_the_detectors_again() -> None:
    """When the service's limits change, the gateway compiles the detectors again."""
    service = Service(regex=digest())
    async with sharing(service) as shared:
        await eventually(lambda: shared.ready([EMAIL]) is not None)
        before = shared.ready([EMAIL])
        service.limits = pb.JudgingLimits(longest_text=10, held_back=5, held_whole=5, detections=1, seconds=1)
        await eventually(lambda: shared.ready([EMAIL]) not in (None, before))


async def test_an_old_list_is_not_used() -> None:
    """Without a recent list, the service judges. With the next list, the gateway uses its compiled detectors."""
    service = Service(regex=digest())
    async with sharing(service, age=0.2) as shared:
        await eventually(lambda: shared.ready([EMAIL]) is not None)
        compiled = shared._compiled[EMAIL,]
        service.down = True
        await eventually(lambda: shared.ready([EMAIL]) is None)
        service.down = False
        await eventually(lambda: shared.ready([EMAIL]) is not None)
        assert shared._compiled[EMAIL,] is compiled


async def test_a_library_that_cannot_be_loaded_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service judges while the gateway's own library fails to load. The gateway logs the cause once."""
    service = Service(regex=digest())
    monkeypatch.setattr(shared_detectors, "_library", broken)
    with capture_logs() as log:
        async with sharing(service) as shared:
            await wait_until_compiled(service, shared, [EMAIL])
            assert shared.ready([EMAIL]) is None
            monkeypatch.undo()
            await eventually(lambda: shared.ready([EMAIL]) is not None)
    assert [entry["error"] for entry in log if entry["log_level"] == "warning"] == ["no such file"]


def broken(*_: object) -> LocalLibrary:
    raise OSError("no such file")


async def test_without_a_policy_the_list_is_not_requested() -> None:
    """A gateway that has no request with a policy does not request the list."""
    service = Service(regex=digest())
    async with sharing(service) as shared:
        assert shared.ready([replace(EMAIL, requested=True)]) is None
        await asyncio.sleep(0)
        assert service.calls == 0


async def test_the_number_of_sets_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new set above the limit displaces the oldest set."""
    monkeypatch.setattr(shared_detectors, "_MAX_SETS", 2)
    service = Service(regex=digest())
    async with sharing(service) as shared:
        sets = [(replace(EMAIL, action=action),) for action in Action]
        for detectors in sets:
            await eventually(lambda detectors=detectors: shared.ready(detectors) is not None)  # type: ignore[misc]  # bound now
        assert list(shared._compiled) == sets[1:]


async def test_a_set_that_cannot_be_compiled_does_not_affect_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a set cannot be compiled, the service judges with it, and the gateway compiles other sets."""
    build = LocalLibrary.build

    def failing(self: LocalLibrary, detectors: Sequence[Detector]) -> LocalDetectors | None:
        if WORDS in detectors:
            raise RecursionError
        return build(self, detectors)

    monkeypatch.setattr(LocalLibrary, "build", failing)
    service = Service(regex=digest(), ban_substrings=digest())
    async with sharing(service) as shared:
        await eventually(lambda: shared.ready([EMAIL]) is not None)
        assert shared.ready([WORDS]) is None
        other = [replace(EMAIL, action=Action.BLOCK)]
        await eventually(lambda: shared.ready(other) is not None)
        assert shared.ready([WORDS]) is None


async def test_a_set_that_is_displaced_during_its_compilation_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of sets also holds if new sets arrive while the gateway compiles an old set."""
    monkeypatch.setattr(shared_detectors, "_MAX_SETS", 2)
    build = LocalLibrary.build
    begun, go = threading.Event(), threading.Event()

    def waiting(self: LocalLibrary, detectors: Sequence[Detector]) -> LocalDetectors | None:
        begun.set()
        go.wait()
        return build(self, detectors)

    service = Service(regex=digest())
    first, second, third = ([replace(EMAIL, action=action)] for action in Action)
    async with sharing(service) as shared:
        await eventually(lambda: shared.ready([replace(EMAIL, allow_on_error=True)]) is not None)
        monkeypatch.setattr(LocalLibrary, "build", waiting)
        try:
            shared.ready(first)
            await asyncio.to_thread(begun.wait)
            shared.ready(second)
            shared.ready(third)
        finally:
            go.set()
        await eventually(lambda: shared.ready(third) is not None)
        assert len(shared._compiled) == 2  # the bound itself
