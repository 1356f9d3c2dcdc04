"""The guard of the gateway releases no secret, for every split of a text into tokens. The detectors run in this
process.

The detectors do not redact the cited name of a passage that the caller has received.

With CAUSEWAY_LEAKS=all, which `make test-leaks` sets, the tests use every split inside each secret of up to 16 code
points, and every split with at most two cuts inside longer secrets. Otherwise they use a sample.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import pytest
from causeway_testing.guardrails.fake import ScriptedDetector, ScriptedJudge
from detection import domain
from detection.chunking.chunkers import Chunking
from detection.detectors.ban_substrings import ban_substrings
from detection.detectors.factory import DetectorFactory
from detection.detectors.patterns.matching import Limits
from detection.detectors.port import Detector, Judge
from detection.detectors.regex import regex
from detection.moderation.rules import Rule
from detection.moderation.session import Session
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.whole_text import judge
from gateway.answering.guard import OutputGuard
from gateway.domain import Action, Batch, Delta, Detections, Event, Finding, Finish
from gateway.ports.answering import Clearance
from guardrails.detectors.secrets import secrets
from hypothesis import example, given, settings
from hypothesis import strategies as st

ALL = os.environ.get("CAUSEWAY_LEAKS") == "all"
SAMPLE = 60
MESSAGE = "Withheld."
LIMITS = Limits(seconds=60)  # so that the test does not fail on a busy machine
BEFORE, AFTER = "Nothing of \U0001f511 note, then ", " and e\u0301 so on."
SECRETS = {
    "ssn": "123-45-6789",
    "card": "4111111111111111",
    "e-mail": "ann@kelp.org",
    "key": "AKIAIOSFODNN7EXAMPLE",
    "phrase": "project tern",
}


@pytest.fixture(scope="module")
def workers() -> Iterator[ThreadPool]:
    """Start a pool with one thread, which scans long texts."""
    started = ThreadPool(1)
    yield started
    started.close()


def detectors() -> list[Detector | Judge]:
    detector_choices: list[tuple[DetectorFactory, dict[str, Any]]] = [
        (regex(LIMITS), {"regex": ["us-social-security-number", "credit-card", "email"]}),
        (secrets(LIMITS), {}),
        (ban_substrings(LIMITS), {"substrings": ["project tern"], "match_type": "str"}),
    ]
    return [factory.make(json.dumps(params).encode()).detector for factory, params in detector_choices]


def rules(action: domain.Action) -> list[Rule]:
    return [Rule(str(at), each, action, domain.OnError.BLOCK, "#") for at, each in enumerate(detectors())]


class SessionWatch:
    """Implements `ports.Watch` with the session of the guardrails service, without a network.

    Attributes:
        cleared: The position up to which each choice is cleared.
    """

    def __init__(self, session: Session, workers: ThreadPool) -> None:
        self._session = session
        self._workers = workers
        self._pieces: asyncio.Queue[domain.Piece | None] = asyncio.Queue(1)
        self._ended = False
        self.cleared: dict[int, int] = {}

    async def feed(
        self, choice: int, text: str, *, last: bool = False, reply_json: bytes = b"", auxiliary: bool = False
    ) -> Sequence[Clearance]:
        if not self._session.blocked:
            await self._pieces.put(domain.Piece(choice, text, last, reply_json))
        return ()

    async def end(self) -> None:
        if not self._session.blocked:
            await self._pieces.put(None)

    async def clearances(self) -> AsyncGenerator[Clearance, None]:
        async with contextlib.aclosing(self._session.run(self._batches(), self._workers)) as run:
            async for steps in run:
                for step in steps:
                    self.cleared[step.choice] = step.cleared_until
                    blocked = step.action is domain.Action.BLOCK
                    findings = tuple(map(_finding, step.findings))
                    yield Clearance(
                        step.choice, step.cleared_until, findings, blocked, fully_judged=step.fully_judged
                    )

    async def _batches(self) -> AsyncGenerator[Sequence[domain.Piece], None]:
        while (piece := await self._pieces.get()) is not None:
            yield [piece]


def _finding(finding: domain.Finding) -> Finding:
    found = finding.detection
    place = found.start, found.end
    action = Action(finding.action.value)
    return Finding(
        finding.detector_id, found.type, found.name, found.score, action, *place, found.text, finding.replacement
    )


async def guard_events(
    detector_rules: Sequence[Rule],
    pieces: Sequence[str],
    workers: ThreadPool,
    chunking: Chunking | None = None,
    names: frozenset[str] = frozenset(),
) -> list[Event]:
    """Return the events that the guard releases, and check that it releases no text before the text is cleared."""
    watch = SessionWatch(Session(detector_rules, chunking=chunking), workers)

    async def model() -> AsyncGenerator[Batch, None]:
        for piece in pieces:
            yield [Delta(0, piece)]
        yield [Finish(0, "stop")]

    protected = any(rule.protects for rule in detector_rules)
    guard = OutputGuard(model(), watch, MESSAGE, protected=protected, chunked=chunking is not None, names=names)
    events: list[Event] = []
    async with contextlib.aclosing(guard.events()) as out:
        async for batch in out:
            events += batch
            if not any(isinstance(event, Detections) for event in events):
                assert len(text_of(events).removesuffix(MESSAGE)) <= watch.cleared.get(0, 0)
    return events


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def splits(secret: str) -> list[tuple[int, ...]]:
    """Return splits of a secret, each as the positions of its cuts."""
    inside = range(1, len(secret))
    counts = range(len(secret)) if len(secret) <= 16 else range(3)
    all_splits = [cuts for count in counts for cuts in itertools.combinations(inside, count)]
    if ALL or len(all_splits) <= SAMPLE:
        return all_splits
    return [tuple(inside), *random.Random(len(secret)).sample(all_splits, SAMPLE)]


def pieces_of(secret: str, cuts: tuple[int, ...]) -> list[str]:
    edges = [0, *cuts, len(secret)]
    parts = [secret[a:b] for a, b in itertools.pairwise(edges)]
    return [BEFORE + parts[0], *parts[1:-1], parts[-1] + AFTER] if cuts else [BEFORE + secret + AFTER]


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("action", [domain.Action.REDACT, domain.Action.BLOCK, domain.Action.REPORT])
@pytest.mark.timeout(900)
async def test_no_split_releases_the_secret(name: str, action: domain.Action, workers: ThreadPool) -> None:
    """For every split, no code point of the secret is released with the actions redact and block. The text around
    it is released, with the action block only the text before it.
    """
    secret, detector_rules = SECRETS[name], rules(action)
    for cuts in splits(secret):
        events = await guard_events(detector_rules, pieces_of(secret, cuts), workers)
        text = text_of(events)
        if action is domain.Action.BLOCK:
            assert BEFORE.startswith(text.removesuffix(MESSAGE)), cuts
            assert text.endswith(MESSAGE), cuts
            assert events[-1] == Finish(0, "content_filter"), cuts
        else:
            shown = secret if action is domain.Action.REPORT else "#"
            assert text == BEFORE + shown + AFTER, cuts
            assert events[-1] == Finish(0, "stop"), cuts
        [found] = [each for event in events if isinstance(event, Detections) for each in event.findings][:1]
        assert (found.start, found.end, found.text) == (len(BEFORE), len(BEFORE) + len(secret), secret), cuts


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("action", [domain.Action.REDACT, domain.Action.BLOCK])
@pytest.mark.timeout(900)
async def test_a_cited_name_is_kept(name: str, action: domain.Action, workers: ThreadPool) -> None:
    """For every split, a redaction keeps the citation of a passage that the caller has received, and redacts
    similar texts that are no such citation. A block keeps no citation.
    """
    secret, detector_rules = SECRETS[name], rules(action)
    cited, names = f"[{secret}.pdf#page=2]", frozenset([f"{secret}.pdf#page=2"])
    similar = [f"[{secret}]", f"[{secret}.pdf#page=3]", f"[{secret}.pdf#page=2", f"{secret}.pdf#page=2]"]
    for cuts in splits(secret):
        inside = [secret[a:b] for a, b in itertools.pairwise([0, *cuts, len(secret)])]
        pieces = [BEFORE + "[", *inside, ".pdf#pa", "ge=2]" + AFTER]
        events = await guard_events(detector_rules, pieces, workers, names=names)
        if action is domain.Action.BLOCK:
            assert events[-1] == Finish(0, "content_filter"), cuts
            assert secret not in text_of(events), cuts
            continue
        assert text_of(events) == BEFORE + cited + AFTER, cuts
        found = [each for event in events if isinstance(event, Detections) for each in event.findings]
        assert {each.action for each in found} == {Action.REPORT}, cuts
    if action is domain.Action.REDACT:
        for text in similar:
            for step in (1, 3, 100):
                pieces = [text[at : at + step] for at in range(0, len(text), step)]
                events = await guard_events(detector_rules, [BEFORE, *pieces, AFTER], workers, names=names)
                assert secret not in text_of(events), (text, step)
                assert text_of(events).startswith(BEFORE), (text, step)
        both = f"{secret} {cited} {secret}"
        events = await guard_events(detector_rules, list(BEFORE + both + AFTER), workers, names=names)
        assert text_of(events) == f"{BEFORE}# {cited} #{AFTER}"


PARTS = ["123-45-678", "4111 1111", "project ter", "ann@", "e\u0301", "\U0001f469\u200d\U0001f4bb"]
FRAGMENTS = [*SECRETS.values(), *PARTS, "zzz", "qq", ". ", "! A", "\n"]
TEXTS = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=4)), max_size=8).map("".join)
ACTIONS = st.sampled_from([domain.Action.REPORT, domain.Action.REDACT])


@st.composite
def rule_mixes(draw: st.DrawFn) -> list[Rule]:
    """Generate rules whose detectors have different windows: patterns, sentences and the whole text."""
    detector_choices: list[Detector | Judge] = [
        *detectors(),
        ScriptedJudge("zz"),
        ScriptedJudge("q", chunking=Chunking.WHOLE),
        ScriptedDetector("zq"),
        ScriptedJudge("A", chunking=Chunking.WHOLE, cross_choice=True),
    ]
    selected = draw(st.lists(st.sampled_from(detector_choices), min_size=1, max_size=5, unique_by=id))
    replacements = st.sampled_from(["#", ""])
    return [
        Rule(str(at), each, draw(ACTIONS), domain.OnError.BLOCK, draw(replacements))
        for at, each in enumerate(selected)
    ]


def is_subsequence(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(character in rest for character in part)


@given(TEXTS, st.lists(st.integers(0, 200), max_size=12), rule_mixes(), st.sampled_from([None, *Chunking]))
@example("zzzqq", [], [Rule("0", ScriptedDetector("zq"), domain.Action.REDACT, domain.OnError.BLOCK, "")], None)
@settings(max_examples=400 if ALL else 60)
def test_a_stream_equals_the_whole_text(
    text: str, cuts: list[int], detector_rules: list[Rule], chunking: Chunking | None
) -> None:
    """For every text, split and mix of windows, the released text and the findings equal those of a check of the
    whole text.
    """
    pieces = [
        text[a:b] for a, b in itertools.pairwise([0, *sorted(min(cut, len(text)) for cut in cuts), len(text)])
    ]

    async def run() -> None:
        workers = ThreadPool(1)
        events = await guard_events(detector_rules, pieces, workers, chunking)
        [verdict], _ = await judge([text], detector_rules, domain.DetectionContext(), workers)
        workers.close()
        assert text_of(events) == (verdict.redacted_text if verdict.action is domain.Action.REDACT else text)
        found = [each for event in events if isinstance(event, Detections) for each in event.findings]
        # If another finding was removed from the span of a finding, the text of the finding is shorter than its
        # span.
        assert all(is_subsequence(each.text, text[each.start : each.end]) for each in found)
        known = [(each.detection.start, each.detection.name, each.action.value) for each in verdict.findings]
        assert sorted(map(repr, known)) == sorted(repr((f.start, f.detection, f.action.value)) for f in found)
        assert events[-1] == Finish(0, "stop")

    asyncio.run(run())
