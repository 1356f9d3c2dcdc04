"""The gateway's event loop stays responsive while detectors judge texts.

`tests/leaks/test_local_detectors.py` compares their results with those of the service.
"""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from causeway.guardrails.v1 import guardrails_pb2 as pb
from detection.detectors.patterns.detector import PatternStream
from detection.domain import Detection
from detection.moderation.thread_pool import ThreadPool
from detection.shared import digest
from gateway.clients.local_detectors import LocalDetectors, LocalLibrary
from gateway.domain import Action, DetectionContext, Detector
from servicekit.deadline import Deadline
from servicekit.errors import Internal

LIMITS = pb.JudgingLimits(longest_text=100_000, held_back=8192, held_whole=8192, detections=10_000, seconds=10)
LISTED = pb.ListDetectorsResponse(
    detectors=[pb.Detector(detector_id="regex", library_digest=digest())], limits=LIMITS
)
EMAIL = Detector("regex", Action.REDACT, params_json=b'{"regex":["email"],"replacement":""}')


@pytest.fixture
def workers() -> Iterator[ThreadPool]:
    pool = ThreadPool(1)
    yield pool
    pool.close()


@pytest.fixture
def local(workers: ThreadPool) -> LocalDetectors:
    made = LocalLibrary(LISTED, workers).build([EMAIL])
    assert made is not None
    return made


def soon() -> Deadline:
    return Deadline.after(60)


async def test_a_thread_judges_all_of_a_long_piece(local: LocalDetectors, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long piece never blocks the event loop, even if the redacted text is judged again."""
    threads: list[threading.Thread] = []
    feed = PatternStream.feed

    def recorded(self: PatternStream, text: str, last: bool) -> tuple[int, list[Detection]]:
        threads.append(threading.current_thread())
        return feed(self, text, last)

    monkeypatch.setattr(PatternStream, "feed", recorded)
    with local.watch(soon(), None) as watch:
        [clearance] = await watch.feed(0, "word " * 3000, last=True)
    assert clearance.fully_judged
    assert len(threads) == 2
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(("size", "turns"), [(2000, 60), (0, 1)], ids=["long", "empty"])
async def test_other_tasks_run_between_pieces(local: LocalDetectors, size: int, turns: int) -> None:
    """While many choices are judged, other tasks run after every few thousand characters or 64 pieces."""
    counted = 0

    async def count() -> None:
        nonlocal counted
        while True:
            counted += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    with local.watch(soon(), None) as watch:
        for choice in range(128):
            await watch.feed(choice, "word " * (size // 5), last=True)
    counting.cancel()
    assert counted >= turns


async def test_a_request_may_be_cancelled_while_a_thread_judges(
    local: LocalDetectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancelled request ends while a thread still judges its text."""
    begun, go = threading.Event(), threading.Event()
    feed = PatternStream.feed

    def waiting(self: PatternStream, text: str, last: bool) -> tuple[int, list[Detection]]:
        begun.set()
        go.wait()
        return feed(self, text, last)

    async def read() -> None:
        with local.watch(soon(), None) as watch:
            await watch.feed(0, "word " * 3000)

    monkeypatch.setattr(PatternStream, "feed", waiting)
    reading = asyncio.create_task(read())
    try:
        await asyncio.to_thread(begun.wait)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    finally:
        go.set()


async def test_an_unexpected_error_clears_nothing(
    local: LocalDetectors, workers: ThreadPool, capsys: pytest.CaptureFixture[str]
) -> None:
    """If judging fails, the reader gets an error, the log has the cause, and no later text is cleared."""
    workers.close()  # makes the judging of a long piece fail
    with local.watch(soon(), None) as watch:
        assert await watch.feed(0, "word " * 3000) == ()
        assert await watch.feed(0, "word ") == ()
        with pytest.raises(Internal):
            await anext(watch.clearances())
    assert "cannot schedule new futures" in capsys.readouterr().out


def test_more_detectors_judge_shorter_texts(workers: ThreadPool) -> None:
    """The event loop judges a text itself only if all detectors together are fast enough."""
    library = LocalLibrary(LISTED, workers)
    one, four = library.build([EMAIL]), library.build([EMAIL] * 4)
    assert one is not None
    assert four is not None
    assert one.can_judge(["a" * 4096], DetectionContext())
    assert not four.can_judge(["a" * 1025], DetectionContext())
    assert four.can_judge(["a" * 1024], DetectionContext())
