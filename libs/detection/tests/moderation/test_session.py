"""detection.moderation.session: which text of growing texts is released, and when."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing

import pytest
from causeway_testing.guardrails.fake import ScriptedDetector, ScriptedJudge
from detection.chunking.chunkers import Chunking
from detection.detectors.ban_substrings import ban_substrings
from detection.detectors.invisible_text import invisible_text
from detection.detectors.patterns.detector import PatternStream
from detection.detectors.patterns.matching import Limits
from detection.detectors.prompt_injection import prompt_injection
from detection.detectors.regex import regex
from detection.domain import (
    Action,
    Detection,
    DetectionContext,
    DetectorSpec,
    Failure,
    Finding,
    OnError,
    Piece,
    Progress,
    Verdict,
)
from detection.moderation.catalogue import Catalogue
from detection.moderation.hold_back import GrowingText
from detection.moderation.rules import Rule, redact
from detection.moderation.session import Session
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.whole_text import judge
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import InvalidRequest

_LIMITS = Limits()
_CATALOGUE = Catalogue(
    [
        regex(Limits(held_back=100)),
        ban_substrings(_LIMITS),
        invisible_text(_LIMITS),
        prompt_injection(_LIMITS),
    ]
)


def _spec(
    detector_id: str, action: Action, params: dict[str, object], on_error: OnError = OnError.BLOCK
) -> DetectorSpec:
    return DetectorSpec(detector_id, action, on_error, json.dumps(params).encode())


def _regex(action: Action, *patterns: str, **params: object) -> DetectorSpec:
    return _spec("regex", action, {"regex": patterns, **params})


def _rules(*specs: DetectorSpec) -> tuple[Rule, ...]:
    return _CATALOGUE.rules(specs)


class _Client:
    """Releases text as a client must: replaces spans in order up to the cleared position, and stops at a block."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._session = Session(rules)
        self._text = ""
        self._released_until = 0
        self.released = ""
        self.blocked = False
        self.findings: list[Finding] = []
        self.failures: list[Failure] = []

    def feed(self, text: str, last: bool = False) -> list[Progress]:
        self._text += text
        steps = self._session.feed([Piece(0, text, last)])
        for step in steps:
            self.findings += step.findings
            self.failures += step.failures
            if step.action is Action.BLOCK:
                assert step.cleared_until == self._released_until
                self.blocked = True
                return steps
            assert self._released_until <= step.cleared_until <= len(self._text)
            for finding in step.findings:
                start, end = finding.detection.start, finding.detection.end
                assert start is not None
                assert end is not None
                within = self._text[start:end]
                rest = iter(within)  # the text of a finding of the second pass lacks the replaced parts of its span
                assert all(character in rest for character in finding.detection.text)
                assert end <= step.cleared_until
                if finding.action is Action.REDACT:
                    self.released += self._text[self._released_until : start] + finding.replacement
                    self._released_until = max(self._released_until, end)
            self.released += self._text[self._released_until : step.cleared_until]
            self._released_until = step.cleared_until
        return steps


def test_clean_text_is_cleared_at_once() -> None:
    """Text that cannot be part of a finding is cleared at once."""
    client = _Client(_rules(_regex(Action.BLOCK, "us-social-security-number")))
    for word in ("Hello, ", "world", "! "):
        client.feed(word)
    assert client.released == "Hello, world! "


def test_a_piece_without_an_effect_has_no_step() -> None:
    """A held piece has no step until its text is cleared. The last piece always has a step."""
    client = _Client(_rules(_regex(Action.BLOCK, "us-social-security-number")))
    assert client.feed("1") == []
    assert client.feed("") == []
    assert client.feed("2") == []
    assert client.feed("", last=True) == [Progress(0, 2, fully_judged=True)]
    assert _Client(_rules(_regex(Action.BLOCK, "email"))).feed("", last=True) == [Progress(0, 0, fully_judged=True)]


def test_a_redacting_finding_comes_with_its_text() -> None:
    """A redacting finding is reported together with the text that contains it."""
    client = _Client(_rules(_regex(Action.REDACT, "email", replacement="<EMAIL>")))
    for piece in ("to a", "@b.", "com", "m, now"):
        client.feed(piece)
    assert client.released == "to <EMAIL>, "
    client.feed("", last=True)
    assert client.released == "to <EMAIL>, now"


def test_a_blocking_finding_comes_at_once() -> None:
    """A blocking finding is reported at once, and the waiting text is not cleared."""
    client = _Client(_rules(_regex(Action.BLOCK, "us-social-security-number")))
    client.feed("Hello ")
    (step,) = client.feed("there, 123-45-6789 is")
    assert step.action is Action.BLOCK
    assert step.cleared_until == 6
    assert [finding.detection.text for finding in step.findings] == ["123-45-6789"]
    assert client.released == "Hello "


def test_a_reporting_rule_holds_no_text() -> None:
    """A rule that only reports holds no text. Its findings are reported when they are certain."""
    client = _Client(_rules(_regex(Action.REPORT, "us-social-security-number")))
    for character in "123-45-6789":
        assert [step.findings for step in client.feed(character)] == [()]
    assert client.released == "123-45-6789"
    (step,) = client.feed(" ")
    assert step.action is Action.REPORT
    assert [finding.detection.start for finding in step.findings] == [0]


def test_a_reporting_finding_waits_for_its_text() -> None:
    """If other rules hold the text of a reporting finding, the finding is reported when its text is cleared."""
    client = _Client(_rules(_regex(Action.REPORT, "b"), _regex(Action.BLOCK, "abc")))
    assert client.feed("ab") == []
    (step,) = client.feed("d")
    assert (step.cleared_until, len(step.findings)) == (3, 1)


def test_text_waits_for_the_slowest_rule() -> None:
    """Text is cleared when every rule that protects it has decided it."""
    client = _Client(_rules(_regex(Action.REDACT, "foobar"), _regex(Action.BLOCK, "oobarbaz")))
    client.feed("xfoobar")
    assert client.released == "x"
    client.feed("!")
    assert client.released == "x[REDACTED]!"


def test_a_redacted_span_is_cleared_as_a_whole() -> None:
    """Overlapping spans of several rules are held until their union is certain, and are then replaced as one."""
    client = _Client(
        _rules(_regex(Action.REDACT, "abcd", replacement="1"), _regex(Action.REDACT, "cdef", replacement="2"))
    )
    client.feed("xabcd")
    assert client.released == "x"
    client.feed("e")
    assert client.released == "x"
    client.feed("fy")
    assert client.released == "x1y"


def test_choices_are_judged_separately() -> None:
    """Each choice is judged separately and does not wait for another. A block ends all choices."""
    session = Session(_rules(_regex(Action.BLOCK, "abc")))
    steps = session.feed([Piece(0, "ab"), Piece(1, "x"), Piece(0, "d"), Piece(2, "a")])
    assert steps == [Progress(0, 3), Progress(1, 1)]
    assert not session.blocked
    steps = session.feed([Piece(2, "bc"), Piece(1, "y")])
    assert [(step.choice, step.action) for step in steps] == [(2, Action.BLOCK)]
    assert session.blocked


def test_a_complete_choice_refuses_further_text() -> None:
    """A complete choice refuses further text, both in the same batch and later."""
    rules = _rules(_regex(Action.BLOCK, "abc"))
    session = Session(rules)
    session.feed([Piece(0, "x", last=True)])
    with pytest.raises(InvalidRequest, match="Choice 0"):
        session.feed([Piece(0, "y")])
    with pytest.raises(InvalidRequest, match="Choice 3"):
        Session(rules).feed([Piece(3, "x", last=True), Piece(3, "")])


def test_the_number_of_choices_is_limited() -> None:
    """The number of choices is limited."""
    session = Session(_rules(_regex(Action.BLOCK, "abc")))
    session.feed([Piece(number, "x") for number in range(128)])
    with pytest.raises(InvalidRequest, match="at most 128"):
        session.feed([Piece(128, "x")])


def _failing(on_error: OnError, error: Exception | None = None) -> Rule:
    detector = ScriptedDetector("secret", poison="poison", error=error)
    return Rule("scripted", detector, Action.REDACT, on_error, "#")


@pytest.mark.parametrize("error", [None, ZeroDivisionError()])
def test_a_failure_blocks(error: Exception | None) -> None:
    """A failing detector blocks. The failure is reported, and no text is cleared."""
    client = _Client([_failing(OnError.BLOCK, error)])
    client.feed("some poison")
    (step,) = client.feed("", last=True)
    assert (step.action, step.cleared_until, len(step.failures)) == (Action.BLOCK, 0, 1)


def test_a_failure_may_be_allowed() -> None:
    """If the rule allows failures, the other rules still judge the text, and the failure is reported once."""
    client = _Client([_failing(OnError.ALLOW), *_rules(_regex(Action.REDACT, "email"))])
    client.feed("poison a@b.co")
    assert client.released == ""
    client.feed("", last=True)
    assert client.released == "poison [REDACTED]"
    assert [failure.detector_id for failure in client.failures] == ["scripted"]


def test_a_reached_hold_back_limit_is_a_failure() -> None:
    """A reached limit is a failure and releases no text, unless the rule allows failures."""
    blocked = _Client(_rules(_regex(Action.REDACT, "x.*z")))
    allowed = _Client(_rules(_spec("regex", Action.REDACT, {"regex": ["x.*z"]}, OnError.ALLOW)))
    for client in (blocked, allowed):
        client.feed("a x" + "b" * 200)
        assert client.released == "a "
        client.feed("c")
    assert (blocked.blocked, blocked.released) == (True, "a ")
    assert (allowed.blocked, allowed.released) == (False, "a x" + "b" * 200 + "c")
    assert [failure.message for failure in blocked.failures] == [
        "more than 100 characters would have to be held back"
    ]


def test_a_finding_about_the_whole_text_comes_with_the_last_piece() -> None:
    """A finding about the whole text is reported with the last piece. If the rule redacts, the finding blocks."""
    detector = ScriptedDetector("rude", spans=False)
    client = _Client([Rule("tone", detector, Action.REDACT, OnError.BLOCK, "#")])
    client.feed("rude words")
    client.feed("", last=True)
    assert (client.blocked, client.released, len(client.findings)) == (True, "", 1)
    session = Session([Rule("tone", detector, Action.REPORT, OnError.BLOCK, "#")])
    assert [step.findings for step in session.feed([Piece(0, "rude")])] == [()]
    (step,) = session.feed([Piece(0, "", last=True)])
    assert [finding.detection.start for finding in step.findings] == [None]


def test_long_pieces_are_judged_in_a_thread() -> None:
    """The event loop judges short pieces itself. Long pieces, and text that is judged again, go to a thread."""
    rule = Rule("d", ScriptedDetector("x", inline_limit=10), Action.BLOCK, OnError.BLOCK, "#")
    session = Session([rule])
    assert session.fits_inline([Piece(0, "a" * 5), Piece(1, "a" * 5)])
    assert not session.fits_inline([Piece(0, "a" * 11)])
    session.feed([Piece(0, "a" * 6)])
    assert session.fits_inline([Piece(0, "a" * 4)])
    assert not session.fits_inline([Piece(0, "a" * 5)])
    session.feed([Piece(0, "", last=True)])
    assert session.fits_inline([Piece(1, "a" * 5)])


_SECRETS = [
    ("regex", {"regex": ["us-social-security-number"]}, "123-45-6789"),
    ("regex", {"regex": ["credit-card"]}, "4111111111111111"),
    ("regex", {"regex": ["email"]}, "ann@ex.org"),
    ("regex", {"regex": ["us-phone-number"]}, "(555) 123-4567"),
    ("regex", {"regex": [r"sk-[a-z0-9]{6}"]}, "sk-ab12cd"),
    ("regex", {"regex": ["iban"]}, "NO9386011117947"),
    ("invisible_text", {"replacement": "[REDACTED]"}, "\u200b\U000e0041\u200b"),
    ("prompt_injection", {}, "do anything now"),
    ("regex", {"regex": [r"🔑é\p{Han}+"]}, "🔑é数据数据"),
    ("ban_substrings", {"substrings": ["Projekt Größe"], "match_type": "word"}, "projekt gröẞe"),
]


def _splits(text: str) -> Iterator[list[str]]:
    for cuts in range(1 << (len(text) - 1)):
        pieces, start = [], 0
        for place in range(1, len(text)):
            if cuts >> (place - 1) & 1:
                pieces.append(text[start:place])
                start = place
        yield [*pieces, text[start:]]


@pytest.mark.slow  # all splits; make unit cuts at random ones
@pytest.mark.parametrize("action", [Action.REDACT, Action.BLOCK])
@pytest.mark.parametrize(("detector_id", "params", "secret"), _SECRETS)
def test_no_split_leaks(detector_id: str, params: dict[str, object], secret: str, action: Action) -> None:
    """For every split, no character of a secret is released, and the text around the secret is."""
    rules = _rules(_spec(detector_id, action, params))
    for pieces in _splits(secret):
        client = _Client(rules)
        client.feed("Id: ")
        for piece in pieces:
            client.feed(piece)
            if client.blocked:
                break
            assert client.released in ("Id:", "Id: ", "Id: [REDACTED]")
        if not client.blocked:
            client.feed(".", last=True)
        assert client.blocked is (action is Action.BLOCK)
        # A space may be the beginning of a secret, too.
        assert client.released.rstrip() == ("Id:" if client.blocked else "Id: [REDACTED].")
        assert [finding.detection.text for finding in client.findings] == [secret]


_FRAGMENTS = st.lists(
    st.one_of(
        st.text("ab1@. -é🔑", max_size=5),
        st.sampled_from(["123-45-6789", "a@b.co", "4111 1111 1111 1111", "10.0.0.1", "top secret", "e\u0301"]),
    ),
    max_size=8,
).map("".join)
_MIXES = st.lists(
    st.sampled_from(
        [
            ("regex", {"regex": ["email", "ipv4", "us-social-security-number"]}),
            ("regex", {"regex": ["credit-card", r"\d+"], "replacement": "<N>"}),
            ("regex", {"regex": [r"a.b", r"\b1\B"], "replacement": ""}),
            ("ban_substrings", {"substrings": ["top secret", "b1", "1-"]}),
            ("ban_substrings", {"substrings": ["é", "a"], "match_type": "word"}),
        ]
    ),
    min_size=1,
    max_size=3,
    unique_by=str,
)


async def _judged(text: str, rules: Sequence[Rule]) -> Verdict:
    workers = ThreadPool(1)
    try:
        (verdict,), _ = await judge([text], rules, DetectionContext(), workers)
    finally:
        workers.close()
    return verdict


@given(_FRAGMENTS, st.lists(st.integers(0, 60), max_size=6), _MIXES, st.data())
def test_the_released_text_is_that_of_the_verdict_on_the_whole_text(
    text: str, cuts: list[int], mix: list[tuple[str, dict[str, object]]], data: st.DataObject
) -> None:
    """For every split, the released text, the findings and the block are those of the whole text."""
    actions = st.sampled_from([Action.REPORT, Action.REDACT, Action.BLOCK])
    rules = _rules(*(_spec(name, data.draw(actions), params) for name, params in mix))
    verdict = asyncio.run(_judged(text, rules))
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    client = _Client(rules)
    for index in range(len(edges) - 1):
        client.feed(text[edges[index] : edges[index + 1]], index == len(edges) - 2)
        if client.blocked:
            break
    assert client.blocked is (verdict.action is Action.BLOCK)
    if client.blocked:
        assert all(
            finding in verdict.findings for finding in client.findings if finding.action is not Action.REDACT
        )
        return
    assert client.released == redact(text, verdict.findings, joint="")
    assert sorted(map(repr, client.findings)) == sorted(map(repr, verdict.findings))


def test_text_may_wait_for_rules_that_only_report() -> None:
    """On request, text also waits for reporting rules. Otherwise these rules hold nothing."""
    rules = _rules(_regex(Action.REPORT, "email"))
    for all_hold, cleared in ((False, [8, 16]), (True, [5, 16])):
        session = Session(rules, all_hold=all_hold)
        steps = [*session.feed([Piece(0, "mail ann")]), *session.feed([Piece(0, "@example", last=True)])]
        assert [step.cleared_until for step in steps] == cleared


def test_texts_beside_the_content_are_judged_by_detectors_of_texts() -> None:
    """Detectors of whole answers do not judge these texts. If no other rule judges such a text, it stays
    uncleared.
    """
    whole = Rule("whole", ScriptedDetector("mail"), Action.BLOCK, OnError.BLOCK, "#", about_answer=True)
    patterns = _rules(_regex(Action.REDACT, "email"))
    text = "mail ann@example.org, please"

    [step] = Session((whole, *patterns)).feed([Piece(7, text, last=True, auxiliary=True)])
    assert (step.choice, step.cleared_until, step.action, step.fully_judged) == (7, len(text), Action.REDACT, True)
    [step] = Session((whole,)).feed([Piece(7, text, last=True, auxiliary=True)])
    assert (step.cleared_until, step.action, step.fully_judged) == (0, Action.NONE, True)
    reporting = _rules(_regex(Action.REPORT, "email"))
    [step] = Session(reporting).feed([Piece(7, text, last=True, auxiliary=True)])
    assert (step.cleared_until, step.action, step.fully_judged) == (len(text), Action.REPORT, True)


def test_the_number_of_texts_beside_the_content_is_limited() -> None:
    """These texts have their own limit, so that an answer with many choices can still have them."""
    session = Session(_rules(_regex(Action.REDACT, "email")))
    session.feed([Piece(at, "a", last=True) for at in range(128)])
    session.feed([Piece(1000 + at, "a", last=True, auxiliary=True) for at in range(1024)])
    with pytest.raises(InvalidRequest, match="at most 128 choices and 1024 texts"):
        session.feed([Piece(5000, "a", last=True, auxiliary=True)])


def _rules_that_join_text() -> tuple[Rule, ...]:
    return _rules(
        _spec("ban_substrings", Action.REDACT, {"substrings": ["ab"], "replacement": ""}),
        _spec("invisible_text", Action.REDACT, {}),
        _regex(Action.REDACT, "us-social-security-number"),
    )


@pytest.mark.parametrize("hidden", ["ab", "\ue000", "\u202e"], ids=ascii)
def test_text_that_a_replacement_joins_is_judged(hidden: str) -> None:
    """In every split, and in a whole text, the text that remains after a redaction contains no secret."""
    text = f"It is 234-{hidden}56-7891. "
    for cut in range(len(text) + 1):
        client = _Client(_rules_that_join_text())
        client.feed(text[:cut])
        client.feed(text[cut:], last=True)
        assert client.released == "It is [REDACTED]. "


async def _redacted(text: str) -> str:
    workers = ThreadPool(1)
    [verdict], _ = await judge([text], _rules_that_join_text(), DetectionContext(), workers)
    workers.close()
    return redact(text, verdict.findings, joint="")


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "2", "34-", "234-56-", "7891", "\ue000", " "]), max_size=12),
    st.data(),
)
def test_the_text_that_a_client_reads_has_no_finding(words: list[str], data: st.DataObject) -> None:
    """For every split, the text that a client reads has no finding, and is the same as for the whole text."""
    text = "".join(words)
    client = _Client(_rules_that_join_text())
    done = 0
    for cut in sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4))):
        client.feed(text[done:cut])
        done = cut
    client.feed(text[done:], last=True)
    assert client.released == asyncio.run(_redacted(text))
    found = [rule for rule in _rules_that_join_text() if rule.detector.detect(client.released)]  # type: ignore[union-attr]  # none is a judge
    assert found == []


def test_a_replacement_is_not_a_finding() -> None:
    """The words of a replacement come from the operator and are not a finding. Words that they form with other text
    can be a finding.
    """
    rules = _rules(_spec("ban_substrings", Action.REDACT, {"substrings": ["cat"], "replacement": "cats and"}))
    client = _Client(rules)
    client.feed("the cat runs", last=True)
    assert client.released == "the cats and runs"
    dashes = _rules(
        _spec("ban_substrings", Action.REDACT, {"substrings": ["x"], "replacement": "-"}),
        _regex(Action.BLOCK, "us-social-security-number"),
    )
    client = _Client(dashes)
    client.feed("234x56x7891 ", last=True)
    assert client.blocked


def test_findings_of_both_passes_have_positions_in_the_original_text() -> None:
    """The findings of both passes are reported: the redacted text, and findings in the rest. No finding is reported
    twice.
    """
    client = _Client(_rules_that_join_text())
    client.feed("ab 234-\ue00056-7891 ab", last=True)
    found = [(f.detector_id, f.detection.start, f.detection.end, f.replacement) for f in client.findings]
    assert found == [
        ("ban_substrings", 0, 2, ""),
        ("regex", 3, 15, "[REDACTED]"),
        ("invisible_text", 7, 8, ""),
        ("ban_substrings", 16, 18, ""),
    ]
    assert client.released == " [REDACTED] "


@pytest.mark.parametrize("slow", [0, 1, 2], ids=["quick", "slow detector", "slow detector that replaces"])
def test_both_passes_over_a_long_piece_run_in_a_thread(monkeypatch: pytest.MonkeyPatch, slow: int) -> None:
    """A long piece never blocks the event loop, not even in the second pass."""
    threads: set[threading.Thread] = set()
    feed = PatternStream.feed

    def recorded(self: PatternStream, text: str, last: bool) -> tuple[int, list[Detection]]:
        threads.add(threading.current_thread())
        return feed(self, text, last)

    async def pieces() -> AsyncIterator[Sequence[Piece]]:
        yield [Piece(0, "word " * 5_000, True)]

    async def steps() -> list[Progress]:
        workers = ThreadPool(1)
        scripted = Rule(
            "names",
            ScriptedJudge("Ann", chunking=Chunking.WHOLE),
            Action.REDACT,
            OnError.BLOCK,
            "" if slow == 2 else "[NAME]",
        )
        rules = _rules(_regex(Action.REDACT, "email", replacement=""))
        session = Session([*rules, scripted] if slow else rules)
        try:
            async with aclosing(session.run(pieces(), workers)) as run:
                return [step async for steps in run for step in steps]
        finally:
            workers.close()

    monkeypatch.setattr(PatternStream, "feed", recorded)
    assert asyncio.run(steps())[-1].fully_judged
    assert threads
    assert threading.main_thread() not in threads


def test_a_text_may_begin_while_a_session_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session whose reader leaves closes without an error, although a thread still judges a new text."""
    session = Session(_rules(_regex(Action.REDACT, "email")))
    session.feed([Piece(0, "a")])
    close = GrowingText.close

    def closing(self: GrowingText) -> None:
        session.feed([Piece(1, "b")])
        close(self)

    monkeypatch.setattr(GrowingText, "close", closing)
    session.close()
