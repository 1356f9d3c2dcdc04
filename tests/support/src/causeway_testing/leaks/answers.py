"""Reads the answers of every dialect."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from causeway_testing.leaks.routes import Route


def objects(route: Route, body: bytes) -> list[Any]:
    """Return the JSON objects of an answer, and check that the answer is complete."""
    if not route.stream:
        return [json.loads(body)]
    text = body.decode()
    if route.is_responses:
        *events, rest = text.split("\n\n")
        assert rest == ""
        return [json.loads(event.partition("\ndata: ")[2]) for event in events]
    if route.has_openai_format:
        *events, done, rest = text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def visible_text(route: Route, body: bytes) -> str:
    """Return the text that the client shows."""
    texts = []
    for each in objects(route, body):
        if route.is_responses:
            texts.append(text_of_response(route, each))
            continue
        assert "error" not in each
        inside = each["choices"][0] if each.get("choices") else each
        piece = inside.get("delta", inside.get("message", inside.get("output_text", inside.get("text", {}))))
        texts.append(piece if isinstance(piece, str) else piece.get("content") or "")
    return "".join(texts)


def text_of_response(route: Route, value: Any) -> str:
    """Return the text of a complete response, or of an event."""
    if route.stream:
        return value["delta"] if value["type"] == "response.output_text.delta" else ""
    assert value["error"] is None
    parts = (part for item in value["output"] if item["type"] == "message" for part in item["content"])
    return "".join(part["text"] for part in parts)


def finish_reasons(route: Route, body: bytes) -> set[str]:
    """Return the finish reasons of the answer.

    In the AI chat protocol, these are the descriptions of the thoughts with the title ``Answer``. In the Responses
    API, this is the reason for an incomplete response, or ``stop``.
    """
    reasons = set()
    if route.is_responses:
        last = objects(route, body)[-1]
        last = last["response"] if route.stream else last
        return {(last["incomplete_details"] or {}).get("reason", "stop")}
    for each in objects(route, body):
        inside = each["choices"][0] if each.get("choices") else each
        reasons |= {inside.get("finish_reason")} if isinstance(inside.get("finish_reason"), str) else set()
        context = inside.get("context") or inside.get("message", {}).get("context") or {}
        reasons |= {each["description"] for each in context.get("thoughts", ()) if each["title"] == "Answer"}
    return reasons


def results(each: Any) -> list[Any]:
    """Return the findings of output detectors in an object of an answer."""
    each = each.get("response", each)
    inside = each["choices"][0] if each.get("choices") else each
    context = inside.get("context") or inside.get("message", {}).get("context") or each
    found = context.get("detections", {}).get("output", ())
    return [result for choice in found for result in choice["results"]]


def texts_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield all names, strings and numbers in a JSON value, each after its path.

    A string that is a JSON object or array also yields its own names, strings and numbers.
    """
    if isinstance(value, dict):
        for name, each in value.items():
            yield (*path, name, "name"), name
            yield from texts_of(each, (*path, name))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from texts_of(each, (*path, at))
    elif isinstance(value, str):
        yield path, value
        with contextlib.suppress(ValueError):
            inner = json.loads(value)
            if isinstance(inner, dict | list):
                yield from texts_of(inner, (*path, "json"))
    elif value is not None and not isinstance(value, bool):
        yield path, json.dumps(value)


def readable_texts(route: Route, body: bytes) -> list[str]:
    """Return all texts that a client can read: each text of an answer, and the joined pieces of a stream."""
    lines = body.decode().splitlines() if route.stream else [body.decode()]
    joined: dict[tuple[Any, ...], str] = {}
    found: list[str] = []
    for line in lines:
        payload = line.removeprefix("data: ")
        if not payload or payload == "[DONE]" or payload.startswith(("event:", ":")):
            continue
        for path, text in texts_of(json.loads(payload)):
            found.append(text)
            joined[path] = joined.get(path, "") + text
    for path, text in joined.items():
        found.append(text)
        if path[-1] in ("arguments", "input"):
            with contextlib.suppress(ValueError):
                found += [inner for _, inner in texts_of(json.loads(text))]
    return found
