"""``context`` of an answer, shared by the stages of the RAG chat protocol: data points, thoughts, detections."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.answering import prompts
from gateway.dialects.answer import Answer, detections_block, directions_of, usage_object, warnings_of
from gateway.domain import Context, Detections, Message, Passage, Picture, RetrievalMode, Step, Subject, Turn

_CHECKS = ("check input", "report on input", "check context")
"""The steps of the detectors."""


def message_text(message: Message) -> str:
    """Return a message in the format of most stages: the text of a Python dictionary."""
    return str({"role": message.role, "content": message.text or _text_of_parts(message)})


def message_object(message: Message) -> dict[str, Any]:
    """Return a message in the format of the latest stage."""
    return {"role": message.role, "content": message.text or _text_of_parts(message)}


def _text_of_parts(message: Message) -> str:
    """Return the text of a message that consists of parts, with ``(a picture)`` for each part that has no text."""
    if not message.content_json:
        return ""
    parts = msgspec.json.decode(message.content_json)
    return "\n".join(part.get("text", "(a picture)") for part in parts)


def picture_object(picture: Picture) -> Any:
    """Return a picture in the format of most stages."""
    return {"detail": "auto", "url": picture.url}


def picture_url(picture: Picture) -> Any:
    """Return a picture in the format of the latest stage."""
    return picture.url


@dataclass(frozen=True, slots=True)
class Formats:
    """The formats that differ between the stages.

    Attributes:
        message: Returns a message of the prompt in the format of the stage.
        picture: Returns a picture of a page in the format of the stage.
    """

    message: Callable[[Message], Any] = message_text
    picture: Callable[[Picture], Any] = picture_object


DEFAULT_FORMATS = Formats()
LATEST_FORMATS = Formats(message_object, picture_url)


def opening(turn: Turn, context: Context, formats: Formats = DEFAULT_FORMATS) -> dict[str, Any]:
    """Return the context before the first text: the data points, and the thoughts about the steps so far."""
    return {
        "data_points": data_points(context, formats),
        "thoughts": thoughts(turn, context, context.steps, formats),
    }


def closing(turn: Turn, answer: Answer, formats: Formats = DEFAULT_FORMATS) -> dict[str, Any]:
    """Return the context at the end. It has no data points, because data points start a new answer in clients."""
    assert answer.context is not None
    block: dict[str, Any] = {"thoughts": thoughts(turn, answer.context, answer.steps, formats, answer)}
    if answer.follow_ups:
        block["followup_questions"] = list(answer.follow_ups)
    directions = directions_of(turn.detectors)
    if directions:
        block["detections"] = detections_block(answer.detections, directions)
        warnings = warnings_of(answer.detections)
        if warnings:
            block["warnings"] = warnings
    return block


def data_points(context: Context, formats: Formats = DEFAULT_FORMATS) -> dict[str, list[Any]]:
    """Return the passages as text, the pictures for the model, and the names for citations."""
    return {
        "text": [prompts.data_point(passage) for passage in context.passages],
        "images": [formats.picture(picture) for picture in context.pictures],
        "citations": list(dict.fromkeys(passage.sourcepage for passage in context.passages)),
    }


def thoughts(
    turn: Turn,
    context: Context,
    steps: tuple[Step, ...],
    formats: Formats = DEFAULT_FORMATS,
    answer: Answer | None = None,
) -> list[dict[str, Any]]:
    """Return the steps of the turn with their durations.

    Args:
        turn: The turn.
        context: The result of the retrieval.
        steps: The steps so far.
        formats: The formats of the stage.
        answer: The complete answer. With None, the thought "Answer" is missing.
    """
    durations = {step.name: step.duration_ms for step in steps}
    listed = [_thought("Original user query", turn.question, _duration(durations, "check input"))]
    if turn.retrieval.indexes:
        has_vector = turn.retrieval.mode is not RetrievalMode.TEXT
        listed += [
            _thought(
                "Generated search query",
                context.query,
                {
                    "has_vector": has_vector,
                    "use_semantic_captions": turn.retrieval.semantic_captions,
                    "mode": turn.retrieval.mode.value,
                    **_duration(durations, "rewrite"),
                    **_tokens(steps, "rewrite"),
                    **_notes(context, Subject.QUERY),
                },
            ),
            _thought(
                "Results",
                [result(passage) for passage in context.passages],
                _duration(durations, "retrieve") | _notes(context, Subject.RESULTS),
            ),
        ]
    prompt = [formats.message(message) for message in context.prompt]
    left_out = {"messages_left_out": context.omitted_messages} if context.omitted_messages else {}
    listed.append(
        _thought("Prompt", prompt, _duration(durations, "budget") | left_out | _notes(context, Subject.PROMPT))
    )
    has_checks = any(name in durations for name in _CHECKS)
    if has_checks or (answer is not None and turn.detectors.output):
        findings = [line for event in answer.detections for line in _finding_lines(event)] if answer else []
        checks = {"duration_ms": round(sum(durations.get(name, 0) for name in _CHECKS), 3)}
        listed.append(_thought("Guardrails", findings, checks))
    if answer is not None:
        listed.append(_thought("Answer", _finish_reason(answer), _answer_props(answer, durations)))
    return listed


def _finding_lines(event: Detections) -> list[str]:
    """Return one line for each finding, without its text, which may be redacted."""
    return [
        f"{event.direction.value}: {finding.detection or finding.detector_id}"
        for finding in event.findings
        if not finding.withheld
    ]


def _finish_reason(answer: Answer) -> str:
    return answer.choices[0].finish_reason if 0 in answer.choices else ""


def _answer_props(answer: Answer, durations: dict[str, float]) -> dict[str, Any]:
    props: dict[str, Any] = {
        "duration_ms": durations.get("generate", 0.0),
        "first_token_ms": durations.get("first token"),
        "steps": [_step(step) for step in answer.steps],
    }
    if answer.usage is not None:
        props["token_usage"] = usage_object(answer.usage)
    return props


def _step(step: Step) -> dict[str, Any]:
    start = {} if step.start_ms is None else {"start_ms": step.start_ms}
    inner = {"steps": [_step(inner_step) for inner_step in step.inner]} if step.inner else {}
    return {"name": step.name, **start, "duration_ms": step.duration_ms, **inner}


def result(passage: Passage) -> dict[str, Any]:
    """Return a passage in the format of the thought "Results"."""
    return {
        "id": passage.id,
        "index": passage.index,
        "content": passage.text,
        "embedding": None,
        "imageEmbedding": None,
        "category": passage.category or None,
        "sourcepage": passage.sourcepage,
        "sourcefile": passage.sourcefile,
        "oids": list(passage.oids),
        "groups": list(passage.groups),
        "captions": [{"text": text, "highlights": None} for text in passage.captions],
        "score": passage.score,
        "dense_score": passage.dense_score,
        "sparse_score": passage.sparse_score,
        "reranker_score": passage.reranker_score,
    }


def _thought(title: str, description: Any, props: dict[str, Any] | None) -> dict[str, Any]:
    return {"title": title, "description": description, "props": props}


def _notes(context: Context, subject: Subject) -> dict[str, Any]:
    notes = [note.text for note in context.notes if note.subject is subject]
    return {"notes": notes} if notes else {}


def _tokens(steps: tuple[Step, ...], name: str) -> dict[str, Any]:
    usage = next((step.usage for step in steps if step.name == name), None)
    return {} if usage is None else {"token_usage": usage_object(usage)}


def _duration(durations: dict[str, float], name: str) -> dict[str, Any]:
    return {"duration_ms": durations.get(name, 0.0)}
