"""The answer to a Responses request: one object, or events that tell how it comes about."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from servicekit.errors import CausewayError, RateLimited, http_status

from gateway.dialects.answer import asked_of, detections_block, warnings_of
from gateway.dialects.openai.render import source_node
from gateway.dialects.responses import record
from gateway.dialects.responses.citations import file_id
from gateway.dialects.responses.output import Output
from gateway.dialects.responses.parts import Events
from gateway.dialects.responses.request import Asked
from gateway.domain import (
    Batch,
    Completion,
    Context,
    Delta,
    Detections,
    Done,
    Finish,
    Passage,
    SearchBegun,
    SearchDone,
    Start,
    Turn,
    Usage,
)
from gateway.domain.deltas import members_of
from gateway.domain.responses import RESPONSE, Before, Stored, named, new_name

DROPPED_TOOLS = b"x-causeway-dropped-tools"
DROPPED_ITEMS = b"x-causeway-dropped-items"
_REASONS = {"content_filter": "content_filter", "length": "max_output_tokens"}
_THOUGHTS = ("reasoning_content", "reasoning")
_FOUND = ("detections", "warnings")
_INVALID = 500
_encode = msgspec.json.encode


class ResponsesExchange:
    """`Exchange` of one response.

    Args:
        turn: What is asked.
        asked: The request.
        before: What it continues.
        streaming: Whether the answer is streamed.
        sources: Whether an index was asked for by its name; then ``source_nodes`` are there.

    Attributes:
        asked: As given.
        before: As given.
        response_id: Id of the response.
        store: Whether it is stored; the response says so.
        headers: Headers of the answer.
    """

    def __init__(self, turn: Turn, asked: Asked, before: Before, *, streaming: bool, sources: bool = False) -> None:
        self.turn = turn
        self.streaming = streaming
        self.asked = asked
        self.before = before
        self.store = before.store
        owner = new_name()
        self.response_id = f"{RESPONSE}_{owner}"
        dropped = ((DROPPED_TOOLS, asked.tools.dropped), (DROPPED_ITEMS, asked.dropped))
        listed = ((name, ", ".join(dict.fromkeys(kinds)).encode()) for name, kinds in dropped if kinds)
        self.headers: tuple[tuple[bytes, bytes], ...] = tuple(listed)
        self.context: Context | None = None
        self._created = int(time.time())
        self._model = turn.shown_model
        self._events = Events(obfuscates=asked.obfuscates)
        custom = frozenset(asked.tools.custom)
        self._output = Output(self._events, owner, custom, summarises=asked.summarises, logprobs=asked.logprobs)
        self._sources = sources
        self._nodes: list[dict[str, Any]] | None = None
        self._found: list[Detections] = []
        self._usage: Usage | None = None
        self._reason = ""
        self._begun = False

    def render(self, batch: Batch) -> bytes:
        """See `Exchange`."""
        for event in batch:
            if type(event) is Delta:
                if event.choice == 0:
                    if not self._begun:
                        self._begin()
                    self._output.take(event)
            elif type(event) is Start:
                self._model = str(members_of(event.raw_json).get("model") or self._model)
            elif type(event) is Context:
                self._rest_on(event)
            elif type(event) is Finish:
                if event.choice == 0:
                    self._reason = event.reason
            elif type(event) is Usage:
                self._usage = event
            elif type(event) is Detections:
                self._found.append(event)
            elif type(event) is SearchBegun:
                if not self._begun:
                    self._begin()
                self._output.begin_search()
            elif type(event) is SearchDone:
                self._searched(event.query, event.passages)
                if self._nodes is not None:
                    self._nodes += [source_node(passage) for passage in event.passages]
            elif type(event) is Completion:
                self._whole(members_of(event.raw_json))
            elif type(event) is Done:
                self._end()
        return self._events.taken()

    def _whole(self, completion: dict[str, Any]) -> None:
        """Take an answer that the model server gave in one piece, of which the first choice counts."""
        self._model = self.turn.answers_as or str(completion.get("model") or self._model)
        if not self._begun:
            self._begin()
        choice: dict[str, Any] = next(iter(completion.get("choices") or ()), {})
        said = {name: value for name, value in (choice.get("message") or {}).items() if value is not None}
        text = said.pop("content", "")
        beside = _encode({"logprobs": choice["logprobs"]}) if choice.get("logprobs") else b""
        thought = {name: said.pop(name) for name in _THOUGHTS if name in said}
        self._output.take(Delta(0, "", _encode(thought)))
        self._output.take(Delta(0, text if isinstance(text, str) else "", b"", beside))
        self._output.take(Delta(0, "", _encode(said)))
        self._reason = choice.get("finish_reason") or ""
        usage = completion.get("usage") or {}
        if usage:
            prompt, answered = (int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens"))
            self._usage = Usage(prompt, answered, _encode(usage))

    def render_failure(self, error: CausewayError) -> bytes:
        """See `Exchange`: the response ends as failed."""
        if not self._begun:
            self._begin()
        self._output.end("incomplete")
        self._events.add("response.failed", response=self._object("failed", error))
        return self._events.taken()

    def take(self, batch: Batch) -> None:
        """See `Exchange`."""
        self.render(batch)

    def complete(self) -> bytes:
        """See `Exchange`."""
        return _encode(self.final())

    def final(self) -> dict[str, Any]:
        """Return the response of an answer that is complete."""
        reason = _REASONS.get(self._reason, "")
        return self._object("incomplete" if reason else "completed", reason=reason)

    def record(self, profile: str) -> Stored:
        """Return what is stored of the response, once all is said but that it is complete.

        Args:
            profile: Name of the front end.
        """
        if not self._begun:
            self._begin()
        self._output.end("incomplete" if self._reason in _REASONS else "completed")
        judged = None if self.context is None else self.context.judged
        left = record.input_left(self.asked.own, self.asked.paths, self.turn, judged)
        items = tuple(named(item, self.response_id, f"i{at}") for at, item in enumerate(left))
        shown = record.shown_left(self.asked.shown, self.turn, judged)
        output = [self._with_results(item) for item in self._output.items]
        said = {**self.final(), **shown, "output": output}
        # Findings have the words that were taken out of the question.
        said = {name: value for name, value in said.items() if name not in _FOUND}
        return Stored(self.response_id, profile, said, items, self.before.chain)

    def _with_results(self, item: dict[str, Any]) -> dict[str, Any]:
        """An item with the passages of a search, which are shown where they are asked for."""
        results = self._output.results.get(item["id"])
        return item if results is None else {**item, "results": results}

    def _begin(self) -> None:
        self._begun = True
        # It is in two events, and may be large.
        begun = msgspec.Raw(_encode(self._object("in_progress")))
        self._events.add("response.created", response=begun)
        self._events.add("response.in_progress", response=begun)
        if self.asked.tools.search is not None and self.context is not None and self.context.query:
            self._output.begin_search()
            self._searched(self.context.query, self.context.passages)

    def _searched(self, query: str, passages: Sequence[Passage]) -> None:
        shown = "file_search_call.results" in self.asked.include
        self._output.end_search(query, [search_result(each) for each in passages], shown=shown)
        self._output.rest_on(passages)

    def _rest_on(self, context: Context) -> None:
        self.context = context
        self._output.rest_on(context.passages)
        if self._sources and self.turn.retrieval.indexes:
            self._nodes = [source_node(passage) for passage in context.passages]

    def _end(self) -> None:
        if not self._begun:
            self._begin()
        self._output.end("incomplete" if self._reason in _REASONS else "completed")
        final = self.final()
        self._events.add(f"response.{final['status']}", response=final)

    def _object(self, status: str, error: CausewayError | None = None, reason: str = "") -> dict[str, Any]:
        said: dict[str, Any] = {
            "id": self.response_id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None if error is None else _error(error),
            "incomplete_details": {"reason": reason} if reason else None,
            "model": self._model,
            "output": self._output.items,
            **self.asked.shown,
            "conversation": {"id": self.before.conversation} if self.before.conversation else None,
            "store": self.store,
            "usage": _usage(self._usage),
        }
        if status == "completed":
            said["completed_at"] = int(time.time())
        if self._sources:
            said["source_nodes"] = self._nodes
        if status != "in_progress" and (named := asked_of(self.turn.detectors)):
            said["detections"] = detections_block(self._found, named)
            if warnings := warnings_of(self._found):
                said["warnings"] = warnings
        return said


def search_result(passage: Passage) -> dict[str, Any]:
    """Return a passage as a result of file search."""
    metadata = members_of(passage.metadata_json or b"{}")
    plain = {name: value for name, value in metadata.items() if isinstance(value, str | int | float)}
    attributes = {name: value if isinstance(value, str | bool) else float(value) for name, value in plain.items()}
    return {
        "file_id": file_id(passage),
        "filename": passage.sourcefile,
        "score": min(1.0, max(0.0, float(passage.relevance))),
        "text": passage.text,
        "attributes": attributes,
    }


def _usage(usage: Usage | None) -> dict[str, Any] | None:
    """Numbers of tokens, with the model server's details of them where it sends some."""
    if usage is None:
        return None
    said = members_of(usage.raw_json) if usage.raw_json else {}
    asked, answered = _details(said, "prompt_tokens_details"), _details(said, "completion_tokens_details")
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": _count(asked, "cached_tokens"),
            "cache_write_tokens": _count(asked, "cache_write_tokens"),
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": _count(answered, "reasoning_tokens")},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _details(said: dict[str, Any], name: str) -> dict[str, Any]:
    return value if isinstance(value := said.get(name), dict) else {}


def _count(details: dict[str, Any], name: str) -> int:
    return value if isinstance(value := details.get(name), int) else 0


def _error(error: CausewayError) -> dict[str, str]:
    """A failure as a response has it: its few codes, and the words for the client."""
    if isinstance(error, RateLimited):
        return {"code": "rate_limit_exceeded", "message": error.message}
    code = "server_error" if http_status(error) >= _INVALID else "invalid_prompt"
    return {"code": code, "message": error.message}
