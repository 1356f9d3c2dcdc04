"""detection.moderation.catalogue: detectors by name."""

import json

import pytest
from detection.detectors.ban_substrings import ban_substrings
from detection.detectors.patterns.matching import Limits
from detection.detectors.port import Judge
from detection.detectors.regex import regex
from detection.domain import Action, DetectorSpec, OnError
from detection.moderation.catalogue import Catalogue
from servicekit.errors import InvalidRequest, NotFound


def _catalogue() -> Catalogue:
    return Catalogue([regex(Limits()), ban_substrings(Limits())])


_EMAIL = json.dumps({"regex": ["email"], "replacement": "<EMAIL>"}).encode()


def test_the_detectors_of_a_request_become_rules() -> None:
    """A request's detectors become rules, with their actions and replacements."""
    rules = _catalogue().rules([DetectorSpec("regex", Action.REDACT, OnError.ALLOW, _EMAIL)])
    assert [(rule.detector_id, rule.action, rule.replacement) for rule in rules] == [
        ("regex", Action.REDACT, "<EMAIL>")
    ]
    assert not rules[0].blocks_on(ValueError())
    assert not isinstance(rules[0].detector, Judge)
    assert rules[0].detector.detect("a@b.co")


def test_an_unknown_detector_is_not_found() -> None:
    """A detector that does not exist is NOT_FOUND, with its name."""
    with pytest.raises(NotFound, match=r"^detector `pii` not found$") as raised:
        _catalogue().rules([DetectorSpec("regex", params=_EMAIL), DetectorSpec("pii")])
    assert raised.value.resource == "pii"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        (b'{"regex": ["("]}', "detectors[1].params.regex[0]"),
        (b'{"regexes": []}', "detectors[1].params.regexes"),
        (b"", "detectors[1].params.regex"),
        (b"[", "detectors[1].params"),
    ],
)
def test_a_wrong_parameter_is_refused(params: bytes, field: str) -> None:
    """Each wrong parameter is refused with its path in the request, on every request."""
    catalogue = _catalogue()
    for _ in range(2):
        with pytest.raises(InvalidRequest, match=r"^`detectors") as raised:
            catalogue.rules([DetectorSpec("regex", params=_EMAIL), DetectorSpec("regex", params=params)])
        assert raised.value.field == field


@pytest.mark.parametrize("count", [0, 33])
def test_the_number_of_detectors_is_limited(count: int) -> None:
    """A request has at least one detector, and at most the limit."""
    with pytest.raises(InvalidRequest, match="1 to 32"):
        _catalogue().rules([DetectorSpec("regex", params=_EMAIL)] * count)


def test_recently_used_detectors_are_cached() -> None:
    """The catalogue keeps recently used detectors, and removes the least recently used detector first."""
    catalogue = _catalogue()

    def detector(word: str) -> object:
        spec = DetectorSpec("ban_substrings", params=json.dumps({"substrings": [word]}).encode())
        return catalogue.rules([spec])[0].detector

    first, second, *_ = [detector(str(number)) for number in range(64)]
    assert detector("0") is first
    detector("another")
    assert detector("0") is first
    assert detector("1") is not second


def test_detectors_are_listed_by_id() -> None:
    """The detectors are listed by id, with the schema of their parameters."""
    infos = _catalogue().infos()
    assert [info.detector_id for info in infos] == ["ban_substrings", "regex"]
    schema = json.loads(infos[1].params_schema)
    assert "regex" in json.dumps(schema)
    assert all(info.streaming and info.description for info in infos)
