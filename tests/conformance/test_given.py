"""Cases of the reference orchestrator, in a file that CAUSEWAY_CONFORMANCE_CASES names.

The file is not part of the project: without the variable pytest does not collect this module (``conftest.py``).
The cases run against a front end with the reference's behaviour. ``differences.yaml`` lists the cases whose answer
is expected to differ, with the reason. A case fails if it differs and is not listed, or is listed and does not
differ.
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

GIVEN = os.environ["CAUSEWAY_CONFORMANCE_CASES"]
MOUNT = "/reference"
WHOLE = "whole_doc_chunker"
"""The only chunker of the reference itself."""

Case = dict[str, Any]

DOCUMENT: dict[str, Any] = json.loads(Path(GIVEN).read_text())
CASES: list[Case] = DOCUMENT["cases"]
LISTED = yaml.safe_load(Path(__file__).with_name("differences.yaml").read_text())
DIFFERENCES: dict[str, str] = LISTED["always"]
TIMING: dict[str, str] = LISTED["by timing"]


@pytest.fixture(scope="module")
def stack(start_stack: Any) -> Iterator[Any]:
    """Start a stack with the detectors and the models of the file."""
    detectors = {
        name: {
            "kind": said["type"],
            "chunker": "whole_doc" if said["chunker_id"] == WHOLE else said["chunker_id"],
            "default_threshold": said["default_threshold"],
        }
        for name, said in DOCUMENT["detector_config"].items()
    }
    models = {case["request"].get("json", {}).get(key) for case in CASES for key in ("model", "model_id")}
    chunkers = {said["chunker_id"] for said in DOCUMENT["detector_config"].values()} - {WHOLE}
    with start_stack(detectors, sorted(filter(None, models)), sorted(chunkers)) as running:
        yield running


@pytest.fixture(scope="module")
def tally() -> Iterator[Counter[str]]:
    """Count the results of the cases, and print them at the end."""
    counted: Counter[str] = Counter()
    yield counted
    lines = [f"{GIVEN}: {sum(counted.values())} cases, {counted['same']} as the reference answers,"]
    lines += [f"{counted['different']} different as expected:"]
    reasons = DIFFERENCES | TIMING
    lines += [f"  {case['name']}: {reasons[case['name']]}" for case in CASES if case["name"] in reasons]
    print("\n" + "\n".join(lines))  # noqa: T201  # who runs it wants to see it


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_given_case(case: Case, stack: Any, tally: Counter[str]) -> None:
    """The gateway answers like the reference, or differs as listed."""
    answer = _asked(case, stack)
    problems = list(_problems(case, answer))
    expected = case["name"] in DIFFERENCES or (bool(problems) and case["name"] in TIMING)
    if problems and not expected:
        pytest.fail("\n".join([*problems, "the answer was:", answer.text]), pytrace=False)
    assert bool(problems) == expected, "it does not differ any more"
    tally["different" if expected else "same"] += 1


def test_each_listed_difference_is_a_case() -> None:
    """Every case that ``differences.yaml`` lists is a case of the file."""
    assert (DIFFERENCES | TIMING).keys() <= {case["name"] for case in CASES}


# --- the servers behind the gateway -------------------------------------------------------------------------


def _asked(case: Case, stack: Any) -> Any:
    model = [*case["upstream_llm_response"], *case.get("router_responses", ())]
    stack.model.answers = lambda asked: _of_model(asked, model)
    stack.detectors.answers = lambda asked: _of_detector(asked, case["detector_responses"])
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


def _of_model(asked: Any, responses: list[Case]) -> Any:
    """Return the response to a request with the same text. Responses of tokenizers and detectors are skipped."""
    for response in responses:
        when, then = response["when"], response["then"]
        if when.get("path", "").endswith("/tokenize") or isinstance(then.get("json"), list):
            continue
        wanted = when.get("json") or {}
        if all(asked.body.get(key) == wanted[key] for key in ("messages", "prompt") if key in wanted):
            return _said(then)
    return _said({"status": 404, "json": {"error": {"message": "nothing is scripted for this"}}})


def _said(then: Mapping[str, Any]) -> Any:
    if "sse_data" in then:
        payloads = [_event(each) for each in then["sse_data"]]
        body = "".join([*payloads, "data: [DONE]\n\n"]).encode()
        return SimpleNamespace(body=body, status=then["status"], media="text/event-stream")
    value = then.get("json")
    if "grpc_message" in then:
        # A text generation server with another protocol. Ours gets a text completion.
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


def _of_detector(asked: Any, responses: list[Case]) -> Any:
    mine = [each for each in responses if each["detector"] == asked.detector]
    if "contents" not in asked.body:
        mine = [each for each in mine if _alike(asked.body, each["when"]["json"])]
        return _said(mine[0]["then"]) if mine else _said({"status": 404, "json": {"message": "nothing scripted"}})
    results = []
    for text in asked.body["contents"]:
        found: list[Any] = []
        for each in mine:
            for known, given in _pairs(each):
                if (at := _place(text, known)) is None:
                    continue
                if given is None:
                    return _said(each["then"])
                found += _moved(given, at, text)
        results.append(found)
    return _said({"status": 200, "json": results})


def _pairs(response: Case) -> Iterator[tuple[str, Any]]:
    """Return each text of a request to a detector with its findings, or None for the response as it is."""
    contents, given = response["when"]["json"]["contents"], response["then"].get("json")
    for at, text in enumerate(contents):
        # The list may be shorter if the last texts have no findings.
        yield text, (given[at] if at < len(given) else []) if isinstance(given, list) else None


def _place(text: str, known: str) -> int | None:
    """Return how much further left a text begins in ours than in the case, or None for another text. The division
    into sentences differs slightly: white space between two sentences belongs to either, and one text of the case
    may be several of ours.
    """
    bare = text.strip()
    at = known.find(bare) if bare else -1
    return at - (len(text) - len(text.lstrip())) if at >= 0 else None


def _moved(results: list[Any], at: int, text: str) -> list[Any]:
    moved = []
    for result in results:
        start, end = result["start"] - at, result["end"] - at
        if 0 <= start <= end <= len(text):
            moved.append({**result, "start": start, "end": end})
    return moved


def _alike(body: Any, wanted: Any) -> bool:
    # The number of a call only joins streamed pieces.
    return bool(_plain(_unnumbered(body)) == _plain(_unnumbered(wanted)))


def _unnumbered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unnumbered(each) for name, each in value.items() if name != "index"}
    return [_unnumbered(each) for each in value] if isinstance(value, list) else value


# --- comparison ---------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Remove members without a meaning: null, and empty objects and lists except results and choices."""
    if isinstance(value, dict):
        kept = {name: _plain(each) for name, each in value.items() if each is not None}
        empty = ("detections", "warnings", "tools", "evidences", "evidence")
        return {name: each for name, each in kept.items() if each or name not in empty or isinstance(each, int)}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _same(said: Any, expected: Any) -> bool:
    if expected == "<any>":
        return True
    if isinstance(expected, dict) and isinstance(said, dict):
        return said.keys() == expected.keys() and all(_same(said[name], expected[name]) for name in said)
    if isinstance(expected, list) and isinstance(said, list):
        return len(said) == len(expected) and all(map(_same, said, expected))
    return bool(said == expected)


def _steps(events: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return events with a separate event for the end of a choice, and with the choices one after the other."""
    steps: list[tuple[int, str, Any]] = []
    last = 0
    for kind, payload in events:
        plain = _plain(payload)
        choices = plain.get("choices") if isinstance(plain, dict) else None
        index = choices[0]["index"] if choices else 1 << 20
        last = max(last, index)
        if choices and "finish_reason" in choices[0]:
            said = {name: each for name, each in choices[0].items() if name != "finish_reason"}
            content = {k: v for k, v in said.get("delta", {}).items() if k != "role"} or said.get("text")
            if content:
                steps.append((index, kind, {**plain, "choices": [said]}))
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
        said, expected = _plain(answer.body), _plain(case["expected_body"])
        prefix = case.get("match") == "details startswith"
        if prefix and said["code"] == expected["code"] and said["details"].startswith(expected["details"]):
            return
        if not _same(said, expected):
            yield f"{said} is not {expected}"
    elif "expected_stream" in case:
        said = _steps(answer.events)
        expected = _steps([(each.get("event", ""), each["data"]) for each in case["expected_stream"]])
        if not _same([list(each) for each in said], [list(each) for each in expected]):
            yield "\n".join(["said", *map(str, said), "expected", *map(str, expected)])
    else:
        for assertion in case["assertions"]:
            yield from _problem(assertion, answer)


# --- assertions of the reference's own tests ----------------------------------------------------------------

_PATH = re.compile(r"\.?(\w+)|\[(\d+)\]")
_STATUSES = {"BAD_REQUEST": 400, "INTERNAL_SERVER_ERROR": 500}


def _problem(assertion: Case, answer: Any) -> Iterator[str]:
    expr = assertion["expr"].replace(" ", "")
    said: Any
    if expr == "response.status()":
        said = answer.status
    elif match := re.fullmatch(r'response\.details\.(contains|starts_with)\(\\?"(.*?)\\?"\)', assertion["expr"]):
        details, words = answer.body["details"], match[2]
        if not (details.startswith(words) if match[1] == "starts_with" else words in details):
            yield f"{details!r} has no {words!r}"
        return
    elif match := re.fullmatch(r"messages\[0\]\.as_ref\(\)\.is_err_and\(\|e\|e\.code==.*StatusCode::(\w+)\)", expr):
        said, assertion = _messages(answer)[0].get("code"), {**assertion, "equals": _STATUSES[match[1]]}
    elif match := re.search(r"output\.results\.len\(\)==(\d+)", expr):
        said = len(answer.body["detections"]["output"][0]["results"])
        assertion = {**assertion, "equals": int(match[1])}
    elif expr.startswith("detections.contains(&Detection{"):
        wanted = _detection(assertion["expr"])
        found = answer.body["detections"]["output"][0]["results"]
        if not any(_same(_plain(each), wanted) for each in found):
            yield f"{wanted} is not among {found}"
        return
    else:
        said, assertion = _looked_up(expr, assertion, answer)
    if not _same(_plain(said), _plain(assertion["equals"])):
        yield f"{assertion['expr']}: {said} is not {assertion['equals']}"


def _looked_up(expr: str, assertion: Case, answer: Any) -> tuple[Any, Case]:
    for ending, wanted in ((".is_none()", None), (".is_empty()", [])):
        if expr.endswith(ending):
            expr, assertion = expr.removesuffix(ending), {**assertion, "equals": wanted}
    counts = expr.endswith(".len()")
    root, path = re.fullmatch(r"(\w+)(.*?)(?:\.len\(\))?", expr).groups()  # type: ignore[union-attr]  # it matches all
    value: Any = answer.body if root in ("response", "results", "completion") else _messages(answer)
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


def _messages(answer: Any) -> list[Any]:
    return [payload for _, payload in answer.events if payload != "[DONE]"]


def _detection(text: str) -> Any:
    wanted: dict[str, Any] = {}
    for name, raw in re.findall(r"(\w+): (?:Some\()?(\\?\".*?\\?\"|[\d.]+)", text):
        wanted[name] = raw.strip('\\"') if '"' in raw else float(raw) if "." in raw else int(raw)
    return wanted
