"""Cases of the reference orchestrator, from the file that CAUSEWAY_CONFORMANCE_CASES names.

The file is not part of the project. Without the variable, pytest does not collect this module (``conftest.py``).
The cases run against a front end with the reference's behaviour. ``differences.yaml`` lists the cases whose answer
is expected to differ, with the reasons. A case fails if its answer differs and the case is not listed, or if the
case is listed and its answer does not differ.
"""

import ast
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from causeway_testing.guardrails.caikit import Cut

CASES_FILE = os.environ["CAUSEWAY_CONFORMANCE_CASES"]
MOUNT = "/reference"
WHOLE = "whole_doc_chunker"
"""The only built-in chunker of the reference."""

Case = dict[str, Any]

DOCUMENT: dict[str, Any] = json.loads(Path(CASES_FILE).read_text())
CASES: list[Case] = DOCUMENT["cases"]
LISTED = yaml.safe_load(Path(__file__).with_name("differences.yaml").read_text())
DIFFERENCES: dict[str, str] = LISTED["always"]
TIMING: dict[str, str] = LISTED["by timing"]


@pytest.fixture(scope="module")
def stack(start_stack: Any) -> Iterator[Any]:
    """Start a stack with the detectors and the models of the file."""
    detectors = {
        name: {
            "kind": config["type"],
            "chunker": "whole_doc" if config["chunker_id"] == WHOLE else config["chunker_id"],
            "default_threshold": config["default_threshold"],
        }
        for name, config in DOCUMENT["detector_config"].items()
    }
    models = {case["request"].get("json", {}).get(key) for case in CASES for key in ("model", "model_id")}
    chunkers = {config["chunker_id"] for config in DOCUMENT["detector_config"].values()} - {WHOLE}
    with start_stack(detectors, sorted(filter(None, models)), sorted(chunkers)) as running:
        yield running


@pytest.fixture(scope="module")
def tally() -> Iterator[Counter[str]]:
    """Count the results of the cases, and print them at the end."""
    counted: Counter[str] = Counter()
    yield counted
    lines = [f"{CASES_FILE}: {sum(counted.values())} cases, {counted['same']} equal to the reference,"]
    lines += [f"{counted['different']} different as expected:"]
    reasons = DIFFERENCES | TIMING
    lines += [f"  {case['name']}: {reasons[case['name']]}" for case in CASES if case["name"] in reasons]
    print("\n" + "\n".join(lines))  # noqa: T201  # the summary is for the user who runs the cases


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_given_case(case: Case, stack: Any, tally: Counter[str]) -> None:
    """The gateway's answer equals the answer of the reference, or differs as listed."""
    answer = _send(case, stack)
    problems = list(_problems(case, answer))
    expected = case["name"] in DIFFERENCES or (bool(problems) and case["name"] in TIMING)
    if problems and not expected:
        pytest.fail("\n".join([*problems, "the answer was:", answer.text]), pytrace=False)
    assert bool(problems) == expected, "the answer does not differ any more: remove the case from differences.yaml"
    tally["different" if expected else "same"] += 1


def test_each_listed_difference_is_a_case() -> None:
    """Every case that ``differences.yaml`` lists is a case of the file."""
    assert (DIFFERENCES | TIMING).keys() <= {case["name"] for case in CASES}


# --- the stub servers -------------------------------------------------------------------------


def _send(case: Case, stack: Any) -> Any:
    model = [*case["upstream_llm_response"], *case.get("router_responses", ())]
    stack.model.respond = lambda request: _model_response(request, model)
    stack.detectors.respond = lambda request: _detector_response(request, case["detector_responses"])
    stack.chunkers.cuts = tuple(map(_cut, case.get("chunker_responses", ())))
    request = case["request"]
    headers = dict(request.get("headers", {}))
    if "ndjson" in request:
        content = b"".join(json.dumps(line).encode() + b"\n" for line in request["ndjson"])
    elif "raw_body" in request:
        content = request["raw_body"].encode()
    else:
        content = json.dumps(request["json"]).encode()
        headers.setdefault("content-type", "application/json")
    return stack.ask(MOUNT + request["path"], headers=headers, content=content)


def _cut(response: Case) -> Cut:
    """Return the chunker's answer to a text: the ends of chunks, or a failure."""
    when, then = response["when"], response["then"]
    if "grpc_messages" in when:
        text = "".join(each.get("text_stream", "") for each in when["grpc_messages"])
        ends = [each["processed_index"] for each in then.get("grpc_messages", ())]
    else:
        text = when["grpc_message"]["text"]
        ends = [each["end"] for each in then.get("grpc_message", {}).get("results", ())]
    return Cut(text, ends, fails=then["status"] != HTTPStatus.OK)


def _model_response(request: Any, responses: list[Case]) -> Any:
    """Return the response to a request with the same text. Responses of tokenizers and detectors are skipped."""
    for response in responses:
        when, then = response["when"], response["then"]
        if when.get("path", "").endswith("/tokenize") or isinstance(then.get("json"), list):
            continue
        expected = when.get("json") or {}
        if all(request.body.get(key) == expected[key] for key in ("messages", "prompt") if key in expected):
            return _response(then)
    return _response({"status": 404, "json": {"error": {"message": "the case has no response to this request"}}})


def _response(then: Mapping[str, Any]) -> Any:
    if "sse_data" in then:
        payloads = [_event(each) for each in then["sse_data"]]
        body = "".join([*payloads, "data: [DONE]\n\n"]).encode()
        return SimpleNamespace(body=body, status=then["status"], media="text/event-stream")
    value = then.get("json")
    if "grpc_message" in then:
        # The reference calls a text generation server over gRPC here. The gateway gets a text completion instead.
        choice = {"index": 0, "text": then["grpc_message"]["generated_text"], "finish_reason": "stop"}
        value = {"choices": [choice], "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}
    body = b"" if value is None else json.dumps(value).encode()
    return SimpleNamespace(body=body, status=then["status"], media="application/json")


def _event(payload: Any) -> str:
    if not isinstance(payload, str):
        return f"data: {json.dumps(payload)}\n\n"
    data = payload.removeprefix("data: ").strip()
    if data.startswith("{'"):
        # The value is in Python's notation.
        return f"data: {json.dumps(ast.literal_eval(data))}\n\n"
    return "" if data == "[DONE]" else payload


def _detector_response(request: Any, responses: list[Case]) -> Any:
    scripted = [each for each in responses if each["detector"] == request.detector]
    if "contents" not in request.body:
        scripted = [each for each in scripted if _equal_bodies(request.body, each["when"]["json"])]
        return (
            _response(scripted[0]["then"])
            if scripted
            else _response({"status": 404, "json": {"message": "the case has no response to this request"}})
        )
    results = []
    for text in request.body["contents"]:
        found: list[Any] = []
        for each in scripted:
            for case_text, given in _pairs(each):
                if (at := _position_in(text, case_text)) is None:
                    continue
                if given is None:
                    return _response(each["then"])
                found += _shift(given, at, text)
        results.append(found)
    return _response({"status": 200, "json": results})


def _pairs(response: Case) -> Iterator[tuple[str, Any]]:
    """Yield each text of a scripted request to a detector with its findings. The findings are None if the response
    is no list of findings, such as an error.
    """
    contents, given = response["when"]["json"]["contents"], response["then"].get("json")
    for at, text in enumerate(contents):
        # The list may be shorter if the last texts have no findings.
        yield text, (given[at] if at < len(given) else []) if isinstance(given, list) else None


def _position_in(text: str, case_text: str) -> int | None:
    """Return the position of our text in a text of the case, or None if the case's text does not contain it.

    The reference divides texts into sentences slightly differently: white space between two sentences may belong to
    either, and one text of the case may be several of our texts. The position can be negative.
    """
    bare = text.strip()
    at = case_text.find(bare) if bare else -1
    return at - (len(text) - len(text.lstrip())) if at >= 0 else None


def _shift(results: list[Any], at: int, text: str) -> list[Any]:
    shifted = []
    for result in results:
        start, end = result["start"] - at, result["end"] - at
        if 0 <= start <= end <= len(text):
            shifted.append({**result, "start": start, "end": end})
    return shifted


def _equal_bodies(body: Any, expected: Any) -> bool:
    # The index of a tool call only connects the pieces of a stream.
    return bool(_without_empty_members(_without_index(body)) == _without_empty_members(_without_index(expected)))


def _without_index(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_index(each) for name, each in value.items() if name != "index"}
    return [_without_index(each) for each in value] if isinstance(value, list) else value


# --- comparison ---------------------------------------------------------------------------------------------


def _without_empty_members(value: Any) -> Any:
    """Remove members that are null, and detections, warnings, tools and evidence that are empty."""
    if isinstance(value, dict):
        members_with_value = {
            name: _without_empty_members(each) for name, each in value.items() if each is not None
        }
        empty = ("detections", "warnings", "tools", "evidences", "evidence")
        return {
            name: each
            for name, each in members_with_value.items()
            if each or name not in empty or isinstance(each, int)
        }
    return [_without_empty_members(each) for each in value] if isinstance(value, list) else value


def _same(actual: Any, expected: Any) -> bool:
    if expected == "<any>":
        return True
    if isinstance(expected, dict) and isinstance(actual, dict):
        return actual.keys() == expected.keys() and all(_same(actual[name], expected[name]) for name in actual)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(actual) == len(expected) and all(map(_same, actual, expected))
    return bool(actual == expected)


def _normalize(events: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return events in a normal form: the finish reason of a choice is a separate event, and the events are sorted
    by choice.
    """
    steps: list[tuple[int, str, Any]] = []
    last = 0
    for kind, payload in events:
        plain = _without_empty_members(payload)
        choices = plain.get("choices") if isinstance(plain, dict) else None
        index = choices[0]["index"] if choices else 1 << 20
        last = max(last, index)
        if choices and "finish_reason" in choices[0]:
            rest = {name: each for name, each in choices[0].items() if name != "finish_reason"}
            content = {k: v for k, v in rest.get("delta", {}).items() if k != "role"} or rest.get("text")
            if content:
                steps.append((index, kind, {**plain, "choices": [rest]}))
                plain = {name: each for name, each in plain.items() if name not in ("detections", "warnings")}
            choices = [{"index": index, "finish_reason": choices[0]["finish_reason"]}]
            plain = {**plain, "choices": choices}
        steps.append((index, kind, plain))
    return [(kind, payload) for _, kind, payload in sorted(steps, key=lambda step: step[0])]


def _problems(case: Case, answer: Any) -> Iterator[str]:
    if answer.status != case["expected_status"]:
        yield f"status {answer.status}, not {case['expected_status']}: {answer.text[:500]}"
        return
    if "expected_body" in case:
        actual, expected = _without_empty_members(answer.body), _without_empty_members(case["expected_body"])
        prefix = case.get("match") == "details startswith"
        if prefix and actual["code"] == expected["code"] and actual["details"].startswith(expected["details"]):
            return
        if not _same(actual, expected):
            yield f"{actual} is not {expected}"
    elif "expected_stream" in case:
        actual = _normalize(answer.events)
        expected = _normalize([(each.get("event", ""), each["data"]) for each in case["expected_stream"]])
        if not _same([list(each) for each in actual], [list(each) for each in expected]):
            yield "\n".join(["actual", *map(str, actual), "expected", *map(str, expected)])
    else:
        for assertion in case["assertions"]:
            yield from _problem(assertion, answer)


# --- assertions of the reference's own tests ----------------------------------------------------------------

_PATH = re.compile(r"\.?(\w+)|\[(\d+)\]")
_STATUSES = {"BAD_REQUEST": 400, "INTERNAL_SERVER_ERROR": 500}


def _problem(assertion: Case, answer: Any) -> Iterator[str]:
    expr = assertion["expr"].replace(" ", "")
    actual: Any
    if expr == "response.status()":
        actual = answer.status
    elif match := re.fullmatch(r'response\.details\.(contains|starts_with)\(\\?"(.*?)\\?"\)', assertion["expr"]):
        details, words = answer.body["details"], match[2]
        if not (details.startswith(words) if match[1] == "starts_with" else words in details):
            yield f"{details!r} has no {words!r}"
        return
    elif match := re.fullmatch(r"messages\[0\]\.as_ref\(\)\.is_err_and\(\|e\|e\.code==.*StatusCode::(\w+)\)", expr):
        actual, assertion = _payloads(answer)[0].get("code"), {**assertion, "equals": _STATUSES[match[1]]}
    elif match := re.search(r"output\.results\.len\(\)==(\d+)", expr):
        actual = len(answer.body["detections"]["output"][0]["results"])
        assertion = {**assertion, "equals": int(match[1])}
    elif expr.startswith("detections.contains(&Detection{"):
        expected = _detection(assertion["expr"])
        found = answer.body["detections"]["output"][0]["results"]
        if not any(_same(_without_empty_members(each), expected) for each in found):
            yield f"{expected} is not among {found}"
        return
    else:
        actual, assertion = _evaluate(expr, assertion, answer)
    if not _same(_without_empty_members(actual), _without_empty_members(assertion["equals"])):
        yield f"{assertion['expr']}: {actual} is not {assertion['equals']}"


def _evaluate(expr: str, assertion: Case, answer: Any) -> tuple[Any, Case]:
    for suffix, expected in ((".is_none()", None), (".is_empty()", [])):
        if expr.endswith(suffix):
            expr, assertion = expr.removesuffix(suffix), {**assertion, "equals": expected}
    counts = expr.endswith(".len()")
    root, path = re.fullmatch(r"(\w+)(.*?)(?:\.len\(\))?", expr).groups()  # type: ignore[union-attr]  # the pattern matches every expression
    value: Any = answer.body if root in ("response", "results", "completion") else _payloads(answer)
    if match := re.fullmatch(r"choice(\d)_messages", root):
        value = [each for each in value if each.get("choices") and each["choices"][0]["index"] == int(match[1])]
    if root == "last":
        value = value[-1]
    for name, index in _PATH.findall(path):
        with suppress(KeyError, TypeError, IndexError):
            value = value[int(index)] if index else value[name]
            continue
        value = None
    if counts:
        return len(value or ()), assertion
    # A missing list equals an empty one.
    return ([] if value is None and assertion["equals"] == [] else value), assertion


def _payloads(answer: Any) -> list[Any]:
    return [payload for _, payload in answer.events if payload != "[DONE]"]


def _detection(text: str) -> Any:
    members: dict[str, Any] = {}
    for name, raw in re.findall(r"(\w+): (?:Some\()?(\\?\".*?\\?\"|[\d.]+)", text):
        members[name] = raw.strip('\\"') if '"' in raw else float(raw) if "." in raw else int(raw)
    return members
