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
_KEYS = frozenset((
    "name", "wires", "post", "body", "raw", "media", "lines",
    "text", "answers", "finds", "fails", "status", "answer", "events",
    "tail", "joined", "by_choice", "model_requests", "last_model_request", "last_detector_request",
    "detector_requests",
))
# fmt: on

Case = dict[str, Any]


@pytest.fixture(scope="module")
def stack(start_stack: Any) -> Iterator[Any]:
    """Start a stack with the detectors of the cases."""
    with start_stack(DOCUMENT["detectors"], ["stub"]) as running:
        yield running


@pytest.mark.parametrize(("case", "wire"), WIRED, ids=[f"{case['name']}, {wire}" for case, wire in WIRED])
def test_case(case: Case, wire: str, stack: Any, make_response: Callable[..., Any]) -> None:
    """The gateway's answer equals the answer of the case, and so do its requests to the model and the detectors."""
    assert case.keys() <= _KEYS
    stack.model.respond = lambda request: _model_response(request, case, make_response)
    stack.detectors.respond = lambda request: _detector_response(request, case, make_response)
    content, media = _request(case)
    answer = stack.ask(
        f"{MOUNTS[wire]}/api/v2/{case['post']}", headers={"content-type": media} if media else {}, content=content
    )
    assert answer.status == case.get("status", 200), answer.text
    payloads = [payload for _, payload in answer.events] if answer.status == 200 else []
    if "joined" in case:
        assert payloads[-1] == "[DONE]", answer.text
        assert_within(case["answer"], _join(payloads[:-1]), answer.text)
    elif "events" in case or "tail" in case:
        if case.get("by_choice"):
            payloads = sorted(payloads[:-1], key=lambda each: each["choices"][0]["index"]) + payloads[-1:]
        expected = case.get("events") or case["tail"]
        assert_within(expected, payloads if "events" in case else payloads[-len(expected) :], answer.text)
        assert payloads.count("[DONE]") == answer.media.startswith("text/event-stream")
    else:
        assert_within(case["answer"], answer.body, answer.text)
    _check_requests(case, stack)


def _check_requests(case: Case, stack: Any) -> None:
    if "model_requests" in case:
        assert len(stack.model.requests) == case["model_requests"]
    if "last_model_request" in case:
        assert_within(case["last_model_request"], stack.model.requests[-1].body)
    if "detector_requests" in case:
        assert len(stack.detectors.requests) == case["detector_requests"]
    if "last_detector_request" in case:
        assert_within(case["last_detector_request"], stack.detectors.requests[-1].body)
        assert "threshold" not in stack.detectors.requests[-1].body["detector_params"]


def assert_within(expected: Any, found: Any, text: str = "", path: str = "") -> None:
    """Assert that a value contains the expected value. Objects may have more members than expected, and lists must
    have the same number of items. The expected member ``<none>`` must be absent.
    """
    if isinstance(expected, dict):
        assert isinstance(found, dict), f"{path}: {found}\n{text}"
        for name, value in expected.items():
            if value == "<none>":
                assert name not in found, f"{path}.{name}: {found.get(name)}\n{text}"
            else:
                assert name in found, f"{path}.{name} is missing\n{text}"
                assert_within(value, found[name], text, f"{path}.{name}")
    elif isinstance(expected, list):
        assert isinstance(found, list), f"{path}: {found}\n{text}"
        assert len(found) == len(expected), f"{path}: {found}\n{text}"
        for index, value in enumerate(expected):
            assert_within(value, found[index], text, f"{path}[{index}]")
    else:
        assert found == expected, f"{path}: {found!r} is not {expected!r}\n{text}"


def _request(case: Case) -> tuple[bytes, str]:
    if "raw" in case:
        return case["raw"].encode(), case.get("media", "")
    if "lines" in case:
        return b"".join(json.dumps(line).encode() + b"\n" for line in case["lines"]), "application/x-ndjson"
    return json.dumps(case["body"]).encode(), "application/json"


def _join(payloads: list[Any]) -> dict[str, Any]:
    """Join the events of a stream, and return one answer with all texts, findings and warnings."""
    joined: dict[str, Any] = {"content": "", "finish_reason": None, "detections": {}, "warnings": set()}
    for payload in payloads:
        for choice in payload["choices"]:
            joined["content"] += choice.get("delta", {}).get("content") or choice.get("text") or ""
            joined["finish_reason"] = choice.get("finish_reason") or joined["finish_reason"]
        for side, entries in payload.get("detections", {}).items():
            found = joined["detections"].setdefault(side, [])
            found += [entry for entry in entries if entry["results"]]
        joined["warnings"] |= {warning["type"] for warning in payload.get("warnings", ())}
    joined["warnings"] = sorted(joined["warnings"])
    return joined


def _model_response(request: Any, case: Case, make_response: Callable[..., Any]) -> Any:
    scripted = case.get("answers")
    if scripted is not None and "events" not in scripted:
        return make_response(json.dumps(scripted["json"]), scripted.get("status", 200), "application/json")
    if scripted is None and not request.body.get("stream"):
        plain = request.path.endswith("/v1/completions")
        texts = ["".join(pieces) for pieces in _choices(case)]
        choices = [
            {"index": index, "finish_reason": "stop"}
            | ({"text": text} if plain else {"message": {"role": "assistant", "content": text}})
            for index, text in enumerate(texts)
        ]
        words = sum(map(len, _choices(case)))
        usage = {"prompt_tokens": 8, "completion_tokens": words, "total_tokens": 8 + words}
        joined = {
            "id": "cmpl-1",
            "object": "text_completion" if plain else "chat.completion",
            "choices": choices,
            "usage": usage,
        }
        return make_response(json.dumps(joined), 200, "application/json")
    return make_response(
        _events(scripted["events"] if scripted else _pieces(request, case)), 200, "text/event-stream"
    )


def _choices(case: Case) -> list[list[str]]:
    text: list[Any] = case.get("text", [])
    return text if text and isinstance(text[0], list) else [text]


def _pieces(request: Any, case: Case) -> list[Any]:
    choices = _choices(case)
    plain = request.path.endswith("/v1/completions")
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
    events = ("\0" if each == "pause" else f"data: {json.dumps(each)}\n\n" for each in payloads)
    return "".join([*events, "data: [DONE]\n\n"])


def _detector_response(request: Any, case: Case, make_response: Callable[..., Any]) -> Any:
    if status := case.get("fails", {}).get(request.detector):
        return make_response(
            json.dumps({"code": status, "message": "scripted failure"}), status, "application/json"
        )
    finds = case.get("finds", {}).get(request.detector, [])
    if "contents" in request.body:
        found: Any = [[_word(text, word) for word in finds if word in text] for text in request.body["contents"]]
    else:
        found = [{"detection_type": "judged", "detection": finds, "score": 0.7}] if finds else []
    return make_response(json.dumps(found), 200, "application/json")


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
