"""guardrails.ragengine_policy: the RAG engine's policy files."""

import json
from pathlib import Path

import pytest
from detection.detectors.ban_substrings import ban_substrings
from detection.detectors.invisible_text import invisible_text
from detection.detectors.patterns.matching import Limits
from detection.detectors.regex import regex
from detection.domain import Action, DetectionContext
from detection.moderation.catalogue import Catalogue
from detection.moderation.thread_pool import ThreadPool
from detection.moderation.whole_text import judge
from guardrails.detectors.counting import reading_time, token_limit
from guardrails.detectors.file_type import file_type
from guardrails.detectors.secrets import secrets
from guardrails.detectors.structure.process import CheckLimits, CheckProcesses
from guardrails.ragengine_policy import DEFAULT_BLOCK_MESSAGE, Policy, load, parse
from servicekit.errors import InvalidRequest
from servicekit.yaml_file import BadFile

_LIMITS = Limits()
_PROCESSES = CheckProcesses(CheckLimits())  # no test here checks a text with them
_CATALOGUE = Catalogue(
    [
        regex(_LIMITS), ban_substrings(_LIMITS), secrets(_LIMITS), invisible_text(_LIMITS), file_type(_PROCESSES),
        token_limit(_LIMITS), reading_time(_LIMITS),
    ]
)  # fmt: skip
_FILE = b"""
action: redact
blockMessage: Not this.
scanners:
  - type: regex
    patterns: ["\\\\d{5}"]
    match_type: search
  - type: BanSubstrings
    substrings: [secret project]
    caseSensitive: false
    action_on_hit: block
  - type: secrets
  - type: sensitive
    detectors: [email, phone]
  - type: invisible-text
  - type: json
  - type: token_limit
    limit: 50
  - type: reading_time
    max_time: 1
    truncate: true
"""


def _parse(raw: bytes) -> Policy:
    return parse(raw, "policy.yaml", _CATALOGUE.rules)


def test_each_scanner_becomes_detectors() -> None:
    """Each scanner of the reference becomes one or more detectors, with the scanner's own action or the file's. An
    empty file requests no detectors.
    """
    policy = _parse(_FILE)
    assert policy.block_message == "Not this."
    requested = [(spec.detector_id, spec.action, json.loads(spec.params)) for spec in policy.output]
    redact, block = Action.REDACT, Action.BLOCK
    assert requested == [
        ("regex", redact, {"regex": ["\\d{5}"]}),
        (
            "ban_substrings",
            block,
            {"substrings": ["secret project"], "match_type": "word", "case_sensitive": False},
        ),
        ("secrets", redact, {}),
        ("regex", redact, {"regex": ["email"], "replacement": "<EMAIL>"}),
        ("regex", redact, {"regex": ["phone-number"], "replacement": "<PHONE>"}),
        ("invisible_text", redact, {}),
        ("file_type", redact, {"file_type": ["json-within"], "required_elements": 0}),
        ("token_limit", redact, {"limit": 50, "encoding": "cl100k_base"}),
        ("reading_time", redact, {"max_time": 1.0}),
    ]
    assert _parse(b"") == Policy((), DEFAULT_BLOCK_MESSAGE)


def test_values_may_be_in_upper_case() -> None:
    """A file with values in upper case gives the same policy as a file in lower case."""

    def policy(fullmatch: str, contained: str, mode: str, detector: str) -> Policy:
        text = (
            f"scanners: [{{type: regex, patterns: [a], match_type: {fullmatch}}}, "
            f"{{type: ban_substrings, substrings: [b], match_type: {contained}}}, "
            f"{{type: secrets, redact_mode: {mode}}}, {{type: sensitive, detectors: [{detector}]}}]"
        )
        return _parse(text.encode())

    assert policy("FULLMATCH", "STR", "HASH", "EMAIL") == policy("fullmatch", "str", "hash", "email")


@pytest.mark.parametrize(
    ("match_type", "redacted"),
    [("search", "[REDACTED] [REDACTED]"), ("all", "[REDACTED] [REDACTED]"), ("fullmatch", "")],
)
async def test_a_regex_finds_all_matches_or_the_whole_text(match_type: str, redacted: str) -> None:
    """``search`` and ``all`` find all matches, and ``fullmatch`` finds only a match of the whole text."""
    policy = _parse(f"scanners: [{{type: regex, patterns: ['[0-9]{{5}}'], match_type: {match_type}}}]".encode())
    workers = ThreadPool(1)
    texts = ["12345 67890", "12345"]
    verdicts, failures = await judge(texts, _CATALOGUE.rules(policy.output), DetectionContext(), workers)
    workers.close()
    assert [verdict.redacted_text for verdict in verdicts] == [redacted, "[REDACTED]"]
    assert failures == []


@pytest.mark.parametrize("key", ["action", "action_on_hit", "actionOnHit"])
def test_a_scanner_can_have_its_own_action(key: str) -> None:
    """A scanner's own action has the reference's name or the name that earlier versions of this service used."""
    raw = f"action: redact\nscanners:\n  - {{type: secrets, {key}: block}}\n  - {{type: invisible_text}}\n"
    assert [spec.action for spec in _parse(raw.encode()).output] == [Action.BLOCK, Action.REDACT]


def test_the_default_file_of_the_reference_requests_no_detectors() -> None:
    """The default file of the reference requests no detectors. Source: kaito-project/kaito, charts/kaito/ragengine,
    guardrails-policy-configmap.
    """
    raw = b"action: block\nblockMessage: The model output was blocked by output guardrails.\nscanners: []\n"
    assert _parse(raw) == Policy((), "The model output was blocked by output guardrails.")


async def test_the_detectors_of_a_policy_redact_and_block() -> None:
    """The detectors of a policy redact and block as configured. A text that is too long is blocked, because no part
    of it can be redacted.
    """
    workers = ThreadPool(1)
    rules = _CATALOGUE.rules(_parse(_FILE).output)
    texts = ["Mail a@b.co, code 12345\u200b.", "The Secret Project.", "word " * 60]
    verdicts, failures = await judge(texts, rules, DetectionContext(), workers)
    workers.close()
    assert verdicts[0].redacted_text == "Mail <EMAIL>, code [REDACTED]."
    assert [verdict.action for verdict in verdicts] == [Action.REDACT, Action.BLOCK, Action.BLOCK]
    assert failures == []


@pytest.mark.parametrize(
    ("scanner", "place"),
    [
        ("{type: toxicity}", "scanners[0]"),
        ("{patterns: [x]}", "scanners[0]"),
        ("{type: regex}", "scanners[0].patterns: this is missing"),
        ("{type: regex, patterns: ['(?=x)']}", "scanners[0]: `detectors[0].params.regex[0]`"),
        ("{type: regex, patterns: [x], is_blocked: false}", "scanners[0].is_blocked"),
        ("{type: ban_substrings, substrings: [x], contains_all: true}", "scanners[0].contains_all"),
        ("{type: sensitive, detectors: [shoe_size]}", "scanners[0].detectors[0]"),
        ("{type: secrets, action: shout}", "scanners[0].action"),
        ("{type: secrets, action: block, action_on_hit: redact}", "scanners[0].action_on_hit"),
        ("{type: secrets, colour: red}", "scanners[0].colour: there is no such key"),
        ("{type: reading_time, max_time: 0}", "scanners[0].max_time"),
    ],
)
def test_a_wrong_policy_file_is_refused(scanner: str, place: str) -> None:
    """A wrong rule, or a rule that would protect less than in the reference, is refused with file, line and key."""
    with pytest.raises(BadFile) as raised:
        _parse(f"action: block\nscanners:\n  - {scanner}\n".encode())
    assert str(raised.value).startswith("policy.yaml, line 3")
    assert place in str(raised.value)


def test_a_wrong_file_is_an_error_only_at_the_start(tmp_path: Path) -> None:
    """At the start, a missing or wrong file is an error. After a wrong change, the service keeps the earlier
    policy.
    """
    path = tmp_path / "policy.yaml"
    with pytest.raises(InvalidRequest, match=r"policy\.yaml"):
        load(path, _CATALOGUE.rules)
    path.write_text("action: shout\n")
    with pytest.raises(InvalidRequest, match=r"policy\.yaml, line 1, action"):
        load(path, _CATALOGUE.rules)
    path.write_bytes(_FILE)
    file = load(path, _CATALOGUE.rules)
    path.write_text("action: shout\n")
    assert not file.check()
    assert file.current.block_message == "Not this."
