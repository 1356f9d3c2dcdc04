"""The project's own cases of the guardrails orchestrator's routes. ``cases.yaml`` describes their form."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

DOCUMENT: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text())
MOUNTS = {"adr": "", "orchestrator": "/reference"}
WIRED = [(case, wire) for case in DOCUMENT["cases"] for wire in case.get("wires", ["adr"])]
# fmt: off
_KNOWN = frozenset((
    "name", "wires", "post", "body", "raw", "media", "lines",
    "says", "answers", "finds", "fails", "status", "answer", "events",
    "tail", "joined", "by_choice", "model_asked", "model_last", "detector_asked", "detectors_asked",
))
# fmt: on

Case = dict[str, Any]


@pytest.fixture(scope="module")
def stack(start_stack: Any) -> Iterator[Any]:
    """Start a stack with the detectors of the cases."""
    with start_stack(DOCUMENT["detectors"], ["stub"]) as running:
        yield running


@pytest.mark.parametrize(("case", "wire"), WIRED, ids=[f"{case['name']}, {wire}" for case, wire in WIRED])
def test_case(case: Case, wire: str, stack: Any, said: Callable[..., Any]) -> None:
    """The answer of the gateway, and its requests to the model and the detectors, are as in the case."""
    assert case.keys() <= _KNOWN
    stack.model.answers = lambda asked: _of_model(asked, case, said)
    stack.detectors.answers = lambda asked: _of_detector(asked, case, said)
    content, media = _request(case)
    answer = stack.ask(
        f"{MOUNTS[wire]}/api/v2/{case['post']}", headers={"content-type": media} if media else {}, content=content
    )
    assert answer.status == case.get("status", 200), answer.text
    payloads = [payload for _, payload in answer.events] if answer.status == 200 else []
    if "joined" in case:
        assert payloads[-1] == "[DONE]", answer.text
        assert_within(case["answer"], _joined(payloads[:-1]), answer.text)
    elif "events" in case or "tail" in case:
        if case.get("by_choice"):
            payloads = sorted(payloads[:-1], key=lambda each: each["choices"][0]["index"]) + payloads[-1:]
        expected = case.get("events") or case["tail"]
        assert_within(expected, payloads if "events" in case else payloads[-len(expected) :], answer.text)
        assert payloads.count("[DONE]") == answer.media.startswith("text/event-stream")
    else:
        assert_within(case["answer"], answer.body, answer.text)
    _check_asked(case, stack)


def _check_asked(case: Case, stack: Any) -> None:
    if "model_asked" in case:
        assert len(stack.model.asked) == case["model_asked"]
    if "model_last" in case:
        assert_within(case["model_last"], stack.model.asked[-1].body)
    if "detectors_asked" in case:
        assert len(stack.detectors.asked) == case["detectors_asked"]
    if "detector_asked" in case:
        assert_within(case["detector_asked"], stack.detectors.asked[-1].body)
        assert "threshold" not in stack.detectors.asked[-1].body["detector_params"]


def assert_within(expected: Any, found: Any, text: str = "", path: str = "") -> None:
    """Assert that the expected value is contained. Further members of objects are permitted, further items of lists
    are not.
    """
    if isinstance(expected, dict):
        assert isinstance(found, dict), f"{path}: {found}\n{text}"
        for name, value in expected.items():
            if value == "<none>":
                assert name not in found, f"{path}.{name}: {found.get(name)}\n{text}"
            else:
                assert name in found, f"{path}.{name} is not there\n{text}"
                assert_within(value, found[name], text, f"{path}.{name}")
    elif isinstance(expected, list):
        assert isinstance(found, list), f"{path}: {found}\n{text}"
        assert len(found) == len(expected), f"{path}: {found}\n{text}"
        for at, value in enumerate(expected):
            assert_within(value, found[at], text, f"{path}[{at}]")
    else:
        assert found == expected, f"{path}: {found!r} is not {expected!r}\n{text}"


def _request(case: Case) -> tuple[bytes, str]:
    if "raw" in case:
        return case["raw"].encode(), case.get("media", "")
    if "lines" in case:
        return b"".join(json.dumps(line).encode() + b"\n" for line in case["lines"]), "application/x-ndjson"
    return json.dumps(case["body"]).encode(), "application/json"


def _joined(payloads: list[Any]) -> dict[str, Any]:
    """Return a stream as one answer with all texts, findings and warnings."""
    whole: dict[str, Any] = {"content": "", "finish_reason": None, "detections": {}, "warnings": set()}
    for payload in payloads:
        for choice in payload["choices"]:
            whole["content"] += choice.get("delta", {}).get("content") or choice.get("text") or ""
            whole["finish_reason"] = choice.get("finish_reason") or whole["finish_reason"]
        for side, entries in payload.get("detections", {}).items():
            found = whole["detections"].setdefault(side, [])
            found += [entry for entry in entries if entry["results"]]
        whole["warnings"] |= {warning["type"] for warning in payload.get("warnings", ())}
    whole["warnings"] = sorted(whole["warnings"])
    return whole


def _of_model(asked: Any, case: Case, said: Callable[..., Any]) -> Any:
    own = case.get("answers")
    if own is not None and "events" not in own:
        return said(json.dumps(own["json"]), own.get("status", 200), "application/json")
    if own is None and not asked.body.get("stream"):
        plain = asked.path.endswith("/v1/completions")
        texts = ["".join(pieces) for pieces in _choices(case)]
        choices = [
            {"index": index, "finish_reason": "stop"}
            | ({"text": text} if plain else {"message": {"role": "assistant", "content": text}})
            for index, text in enumerate(texts)
        ]
        words = sum(map(len, _choices(case)))
        usage = {"prompt_tokens": 8, "completion_tokens": words, "total_tokens": 8 + words}
        whole = {
            "id": "cmpl-1",
            "object": "text_completion" if plain else "chat.completion",
            "choices": choices,
            "usage": usage,
        }
        return said(json.dumps(whole), 200, "application/json")
    return said(_events(own["events"] if own else _pieces(asked, case)), 200, "text/event-stream")


def _choices(case: Case) -> list[list[str]]:
    says: list[Any] = case.get("says", [])
    return says if says and isinstance(says[0], list) else [says]


def _pieces(asked: Any, case: Case) -> list[Any]:
    choices = _choices(case)
    plain = asked.path.endswith("/v1/completions")
    head = {"id": "cmpl-1", "object": "text_completion" if plain else "chat.completion.chunk", "model": "stub"}
    events = []
    for index, pieces in enumerate(choices):
        for piece in [*pieces, None]:
            choice: dict[str, Any] = {"index": index, "finish_reason": "stop" if piece is None else None}
            choice |= {"text": piece or ""} if plain else {"delta": {} if piece is None else {"content": piece}}
            events.append({**head, "choices": [choice]})
    words = sum(len(pieces) for pieces in choices)
    usage = {"prompt_tokens": 8, "completion_tokens": words, "total_tokens": 8 + words}
    return [*events, {**head, "choices": [], "usage": usage}]


def _events(payloads: list[Any]) -> str:
    said = ("\0" if each == "pause" else f"data: {json.dumps(each)}\n\n" for each in payloads)
    return "".join([*said, "data: [DONE]\n\n"])


def _of_detector(asked: Any, case: Case, said: Callable[..., Any]) -> Any:
    if status := case.get("fails", {}).get(asked.detector):
        return said(json.dumps({"code": status, "message": "told to"}), status, "application/json")
    finds = case.get("finds", {}).get(asked.detector, [])
    if "contents" in asked.body:
        found: Any = [[_word(text, word) for word in finds if word in text] for text in asked.body["contents"]]
    else:
        found = [{"detection_type": "judged", "detection": finds, "score": 0.7}] if finds else []
    return said(json.dumps(found), 200, "application/json")


def _word(text: str, word: str) -> dict[str, Any]:
    start = text.index(word)
    end = start + len(word)
    return {
        "start": start,
        "end": end,
        "text": word,
        "detection_type": "word",
        "detection": word,
        "score": 0.9,
    }
