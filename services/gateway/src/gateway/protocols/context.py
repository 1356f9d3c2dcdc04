"""``context`` of an answer, as the stages of the RAG chat protocol share it: data points, thoughts, detections."""

from typing import Any

from gateway import prompts
from gateway.domain import Context, Passage, RetrievalMode, Step, Turn
from gateway.protocols.answer import Answer, asked_of, detections_block, warnings_of


def opening(turn: Turn, context: Context) -> dict[str, Any]:
    """What is known before the first word: the data points, and the thoughts so far."""
    return {"data_points": data_points(context), "thoughts": thoughts(turn, context, context.steps)}


def closing(turn: Turn, answer: Answer) -> dict[str, Any]:
    """What is known at the end: all thoughts; without data points, which a client would take for a new answer's."""
    assert answer.context is not None
    block: dict[str, Any] = {"thoughts": thoughts(turn, answer.context, answer.steps, answer)}
    if answer.follow_ups:
        block["followup_questions"] = list(answer.follow_ups)
    asked = asked_of(turn.detectors)
    if asked:
        block["detections"] = detections_block(answer.detections, asked)
        warnings = warnings_of(answer.detections)
        if warnings:
            block["warnings"] = warnings
    return block


def data_points(context: Context) -> dict[str, list[str]]:
    """The passages as text, and the names they are cited by."""
    return {
        "text": [prompts.data_point(passage) for passage in context.passages],
        "citations": list(dict.fromkeys(passage.sourcepage for passage in context.passages)),
    }


def thoughts(
    turn: Turn, context: Context, steps: tuple[Step, ...], answer: Answer | None = None
) -> list[dict[str, Any]]:
    """The steps behind the answer, each with its time; the last ones only once there is an answer."""
    spent = {step.name: step.duration_ms for step in steps}
    listed = [_thought("Original user query", turn.question, _spent(spent, "check input"))]
    if turn.retrieval.indexes:
        has_vector = turn.retrieval.mode is not RetrievalMode.TEXT
        listed += [
            _thought(
                "Generated search query",
                context.query,
                {
                    "has_vector": has_vector,
                    "use_semantic_captions": False,
                    "mode": turn.retrieval.mode.value,
                    "duration_ms": 0.0,
                },
            ),
            _thought("Results", [result(passage) for passage in context.passages], _spent(spent, "retrieve")),
        ]
    prompt = [str({"role": message.role, "content": message.text}) for message in context.prompt]
    listed.append(_thought("Prompt", prompt, _spent(spent, "budget")))
    if "check input" in spent or "check context" in spent:
        found = [str(event.direction.value) for event in answer.detections if event.findings] if answer else []
        checks = {"duration_ms": round(spent.get("check input", 0) + spent.get("check context", 0), 3)}
        listed.append(_thought("Guardrails", found, checks))
    if answer is not None:
        listed.append(_thought("Answer", _said(answer), _answer_props(answer, spent)))
    return listed


def _said(answer: Answer) -> str:
    return answer.choices[0].finish_reason if 0 in answer.choices else ""


def _answer_props(answer: Answer, spent: dict[str, float]) -> dict[str, Any]:
    props: dict[str, Any] = {
        "duration_ms": spent.get("generate", 0.0),
        "first_token_ms": spent.get("first token"),
        "steps": [{"name": step.name, "duration_ms": step.duration_ms} for step in answer.steps],
    }
    if answer.usage is not None:
        props["token_usage"] = {
            "prompt_tokens": answer.usage.prompt_tokens,
            "completion_tokens": answer.usage.completion_tokens,
            "total_tokens": answer.usage.prompt_tokens + answer.usage.completion_tokens,
        }
    return props


def result(passage: Passage) -> dict[str, Any]:
    """A passage as the protocol lists it among the results."""
    return {
        "id": passage.id,
        "content": passage.text,
        "embedding": None,
        "imageEmbedding": None,
        "category": passage.category or None,
        "sourcepage": passage.sourcepage,
        "sourcefile": passage.sourcefile,
        "oids": list(passage.oids),
        "groups": list(passage.groups),
        "captions": [],
        "score": passage.score,
        "reranker_score": passage.reranker_score,
    }


def _thought(title: str, description: Any, props: dict[str, Any] | None) -> dict[str, Any]:
    return {"title": title, "description": description, "props": props}


def _spent(spent: dict[str, float], name: str) -> dict[str, Any]:
    return {"duration_ms": spent.get(name, 0.0)}
