"""Let a model search while it answers: the model calls a function, receives passages, and continues."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from servicekit.deadline import Deadline

from gateway.answering import prompts
from gateway.answering.checks import Checks
from gateway.answering.context_selection import ContextSelection, with_answer_limit
from gateway.answering.generation import Generation
from gateway.answering.timeline import Timeline
from gateway.answering.usage_sums import add_usage
from gateway.domain import (
    Batch,
    Delta,
    Event,
    Finish,
    Message,
    Passage,
    SearchBegun,
    SearchDone,
    SearchTool,
    Selection,
    ToolCall,
    Turn,
    Usage,
)
from gateway.domain.deltas import members_of
from gateway.ports.answering import Generator, Prompt

MAX_QUERY_LENGTH = 2000
"""The maximum number of characters of a search query. The gateway does not search for a longer one."""

DEFAULT_PASSAGES = 20
"""The default number of passages of a search. The passages of several searches share the context window."""

_STOPPED = ("content_filter", "length")
_encode = msgspec.json.encode
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_arguments = msgspec.json.Decoder(dict[str, Any])


class ModelSearches:
    """Offers a model a search function, and runs its searches.

    Args:
        generator: Reports whether a model can call tools.
        generation: Generates answers.
        context: Finds passages.
        checks: Judges the passages.
    """

    def __init__(
        self, generator: Generator, generation: Generation, context: ContextSelection, checks: Checks
    ) -> None:
        self._generator, self._generation = generator, generation
        self._context, self._checks = context, checks

    async def is_enabled(self, turn: Turn, deadline: Deadline) -> bool:
        """Return whether the model searches: the turn allows it and has indexes, and the model can call tools."""
        if turn.searching is None or not turn.retrieval.indexes:
            return False
        known = self._generator.recent_properties(turn.model) or await self._generator.count_tokens(
            turn.principal, turn.model, (), (), deadline
        )
        return known.calls_tools

    async def events(
        self, turn: Turn, found: list[Passage], timeline: Timeline, deadline: Deadline
    ) -> AsyncGenerator[Batch, None]:
        """Yield the events of the answer and of its searches. The token counts include all rounds.

        If the model also calls functions of the request in a round, the gateway drops the searches of that round.
        The model can request them again after it has the results of those functions.

        Args:
            turn: The turn after its checks, with `Turn.searching`.
            found: The list to which the function adds the passages.
            timeline: Records the steps.
            deadline: The time by which the answer must end.
        """
        tool = turn.searching
        assert tool is not None
        searches_left, is_first, previous_usage = tool.max_searches, True, Usage(0, 0)
        while True:
            parameters = _round_parameters(
                turn.parameters_json, tool, searches_left=searches_left, is_first=is_first
            )
            round_turn = replace(turn, parameters_json=parameters)
            current = _Round(tool.name, previous_usage)
            batches = self._generation.events(_prompt(round_turn, found), round_turn, timeline, deadline)
            async with aclosing(batches):
                async for batch in batches:
                    events = current.take(batch)
                    timeline.usage = current.usage or timeline.usage
                    if events:
                        yield events
            turn = _with_remaining_limit(turn, current.usage, previous_usage)
            previous_usage, is_first = current.usage or previous_usage, False
            if not (current.searches and searches_left) or turn.max_tokens == 0:
                yield current.end(cut=bool(current.searches) and turn.max_tokens == 0)
                return
            turn = _with_call(turn, current)
            for call in current.searches:
                result = prompts.NO_MORE_SEARCHES
                if searches_left:
                    searches_left -= 1
                    query = _query(call.arguments)
                    yield [SearchBegun(query)]
                    passages, detections = await self._searched(turn, query, timeline, deadline)
                    found += passages
                    yield [*detections, SearchDone(query, passages)]
                    result = prompts.search_results(passages) if query else prompts.NO_QUERY
                turn = _with_result(turn, call, result)

    async def _searched(
        self, turn: Turn, query: str, timeline: Timeline, deadline: Deadline
    ) -> tuple[tuple[Passage, ...], Sequence[Event]]:
        """Return the passages for a query that no detector blocks and that fit the window, and the findings."""
        if not query:
            return (), ()
        retrieval = replace(turn.retrieval, top=turn.retrieval.top or DEFAULT_PASSAGES)
        search_turn = replace(turn, retrieval=retrieval)
        similar = await self._context.search(search_turn, query, timeline, deadline)
        assert similar is not None
        passages, detections = await self._checks.check_context(search_turn, similar.passages, timeline, deadline)
        _, fitting = await self._context.select(search_turn, Selection(passages), timeline, deadline)
        return fitting.passages, detections


@dataclass(slots=True)
class _Call:
    """A search that a model requests."""

    id: str
    arguments: str = ""


class _Round:
    """The model's output until the model requests a search or ends its answer.

    Args:
        name: The name of the search function.
        previous_usage: The tokens of the previous rounds.

    Attributes:
        text: The text of the round.
        searches: The requested searches. Empty if the model also calls functions of the request, or was stopped.
        usage: The tokens of all rounds, or None if they are not known.
    """

    def __init__(self, name: str, previous_usage: Usage) -> None:
        self._name, self._previous_usage = name, previous_usage
        self.text = ""
        self.usage: Usage | None = None
        self._calls: dict[int, _Call] = {}
        self._others = False
        self._finish = Finish(0, "stop")

    @property
    def searches(self) -> list[_Call]:
        """Return the requested searches that the gateway must run."""
        return [] if self._others or self._finish.reason in _STOPPED else list(self._calls.values())

    def take(self, batch: Batch) -> list[Event]:
        """Record the events of a batch and return the events that the client receives immediately."""
        out: list[Event] = []
        for event in batch:
            if type(event) is Delta:
                self.text += event.text
                if (remaining := self._without_searches(event)) is not None:
                    out.append(remaining)
            elif type(event) is Finish:
                self._finish = event
            elif type(event) is Usage:
                self.usage = add_usage(self._previous_usage, event)
            else:
                out.append(event)
        return out

    def end(self, *, cut: bool = False) -> list[Event]:
        """Return the events that end the answer.

        Args:
            cut: Whether no tokens are left to continue.
        """
        finish = Finish(0, "length") if cut else self._finish
        return [finish] if self.usage is None else [finish, self.usage]

    def _without_searches(self, event: Delta) -> Delta | None:
        if b'"tool_calls"' not in event.delta_json:
            return event
        other_calls: list[msgspec.Raw] = []
        for piece in event.parts:
            if type(piece) is not ToolCall or piece.index is None:
                continue
            if piece.name == self._name:
                self._calls[piece.index] = _Call(piece.id or f"call_{piece.index}")
            call = self._calls.get(piece.index)
            if call is None:
                other_calls.append(msgspec.Raw(piece.raw_json))
            else:
                call.arguments += piece.arguments
        self._others = self._others or bool(other_calls)
        members = {name: value for name, value in members_of(event.delta_json).items() if name != "tool_calls"}
        if other_calls:
            members["tool_calls"] = other_calls
        if not (members or event.text):
            return None
        return Delta(event.choice, event.text, _encode(members) if members else b"", event.choice_json)


def _prompt(turn: Turn, found: Sequence[Passage]) -> Prompt:
    return Prompt(
        turn.principal,
        turn.model,
        turn.query,
        prompts.compose(turn, ()),
        tuple(found),
        turn.parameters_json,
        unary=turn.unary and not turn.detectors.output,
    )


def _round_parameters(parameters_json: bytes, tool: SearchTool, *, searches_left: int, is_first: bool) -> bytes:
    """Return the parameters of a round. They contain the search tool while searches are left."""
    members: dict[str, Any] = dict(_object.decode(parameters_json))
    if tool.first_choice_json:
        # The request's tool choice applies to the first round only: the model has then made the required call.
        members.pop("tool_choice", None)
        if is_first:
            members["tool_choice"] = msgspec.Raw(tool.first_choice_json)
    if searches_left:
        listed = msgspec.json.decode(members.get("tools", b"[]"), type=list[msgspec.Raw])
        members["tools"] = [*listed, prompts.search_function(tool.name)]
    return _encode(members)


def _query(arguments: str) -> str:
    """Return the query in the arguments of a call, or an empty text if the query is invalid."""
    try:
        query = _arguments.decode(arguments).get("query")
    except (ValueError, RecursionError):
        return ""
    text = query.strip() if isinstance(query, str) else ""
    return text if len(text) <= MAX_QUERY_LENGTH else ""


def _with_call(turn: Turn, current: _Round) -> Turn:
    """Return the turn after a model's request for searches, with the question in the history."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": turn.searching and turn.searching.name, "arguments": call.arguments},
        }
        for call in current.searches
    ]
    extra = turn.original.question_extra_json
    question = (Message("user", turn.question, b"", extra),) if turn.question else ()
    called = Message("assistant", current.text, b"", _encode({"tool_calls": calls}))
    return replace(turn, question="", history=(*turn.history, *question, called))


def _with_result(turn: Turn, call: _Call, result: str) -> Turn:
    answer = Message("tool", result, b"", _encode({"tool_call_id": call.id}))
    return replace(turn, history=(*turn.history, answer))


def _with_remaining_limit(turn: Turn, usage: Usage | None, previous_usage: Usage) -> Turn:
    """Return the turn with the answer's limit reduced by the tokens of a round."""
    if turn.max_tokens is None or usage is None:
        return turn
    round_tokens = usage.completion_tokens - previous_usage.completion_tokens
    return with_answer_limit(turn, max(0, turn.max_tokens - round_tokens))
