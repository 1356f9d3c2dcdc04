"""Determine the search query of a turn: the question, or a query that a model writes from the conversation."""

from contextlib import aclosing
from dataclasses import dataclass

import msgspec
import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Unavailable

from gateway.answering import prompts
from gateway.answering.checks import Checks
from gateway.answering.timeline import Timeline
from gateway.domain import Delta, Finish, Turn, Usage
from gateway.ports.answering import Generator, Prompt

MAX_QUERY_LENGTH = 400
"""The maximum number of characters of a search query. A longer text from the model is not a query."""

MAX_SECONDS = 10.0
SHARE_OF_TIME = 1 / 3
"""The model's time limit: this share of the remaining time, at most `MAX_SECONDS`."""

PARAMETERS = b'{"temperature":0,"max_tokens":100}'
REASONING_MODEL_TOKENS = 1000
"""The token limit of a reasoning model. Such models accept neither a temperature nor ``max_tokens``."""

ONLY_QUOTES = "The model only quotes its sources and writes no search queries: the search used the question."
FAILED = "The model wrote no search query: the search used the question."
UNUSABLE = "The model's text was not a usable search query: the search used the question."
STOPPED = "The detectors stopped the search query of the model: the search used the question."

_NULL = msgspec.Raw(b"null")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_CONVERSATION = ("user", "assistant")
_END_OF_REASONING = "</think>"
_QUOTES = ('""', "''", "``", "“”", "„“", "«»")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Query:
    """A search query.

    Attributes:
        text: The query.
        note: The reason why the query is the question although the turn requests a rewritten query, or empty.
    """

    text: str
    note: str = ""


class QueryRewriting:
    """Requests a search query from the turn's model.

    Args:
        generator: Calls models.
        checks: Judges the query, because clients see it.
    """

    def __init__(self, generator: Generator, checks: Checks) -> None:
        self._generator = generator
        self._checks = checks

    async def query(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> Query:
        """Return the search query of a turn after the detectors have judged it.

        If the rewriting fails, the search uses the question, and the answer does not fail.
        """
        rewrites = turn.prompting.rewrite and turn.retrieval.indexes
        if not (rewrites and any(message.role in _CONVERSATION for message in turn.history)):
            return Query(turn.query)
        with timeline.step("rewrite"):
            try:
                seconds = min(deadline.remaining() * SHARE_OF_TIME, MAX_SECONDS)
                return await self._rewritten(turn, timeline, Deadline.after(seconds))
            except CausewayError as error:
                _log.warning("the query was not rewritten", error=error.message)
                return Query(turn.query, FAILED)

    async def _rewritten(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> Query:
        known = self._generator.recent_properties(turn.model) or await self._generator.count_tokens(
            turn.principal, turn.model, (), (), deadline
        )
        if known.only_quotes:
            return Query(turn.query, ONLY_QUOTES)
        text = _as_query(await self._generated(turn, timeline, deadline))
        if not text:
            return Query(turn.query, UNUSABLE)
        if not await self._checks.clears_query(turn, text, timeline, deadline):
            return Query(turn.query, STOPPED)
        return Query(text)

    async def _generated(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> str:
        """Return the model's text, or an empty text if the model's text is too long or not complete.

        Raises:
            CausewayError: The model failed.
        """
        prompt = Prompt(
            turn.principal,
            turn.model,
            turn.query,
            prompts.query_messages(turn),
            parameters_json=_parameters(turn),
            unary=True,
        )
        text, reason = "", ""
        async with aclosing(self._generator.generate(prompt, deadline)) as batches:
            async for batch in batches:
                timeline.model_responded = True
                for event in batch:
                    if isinstance(event, Delta) and event.choice == 0:
                        text += event.text
                    elif isinstance(event, Finish) and event.choice == 0:
                        reason = event.reason
                    elif isinstance(event, Usage):
                        timeline.set_usage("rewrite", event)
                if len(text) > prompts.MAX_MESSAGE_LENGTH:
                    return ""
        if not reason:
            raise Unavailable("The model did not end its search query. Repeat the request.", retry_after=1)
        return text if reason == "stop" else ""


def _parameters(turn: Turn) -> bytes:
    """Return parameters for a short, deterministic output, if the model supports them."""
    # `msgspec.Raw` keeps the other members encoded: they may contain numbers that Python cannot represent.
    effort = _object.decode(turn.parameters_json).get("reasoning_effort", _NULL)
    if effort == _NULL:
        return PARAMETERS
    return msgspec.json.encode({"reasoning_effort": effort, "max_completion_tokens": REASONING_MODEL_TOKENS})


def _as_query(raw_text: str) -> str:
    """Return a model's text as a search query, or an empty text if it is too long.

    The query is on one line, without the model's reasoning and without enclosing quotation marks.
    """
    text = " ".join(raw_text.rpartition(_END_OF_REASONING)[2].split())
    if text[:1] + text[-1:] in _QUOTES:
        text = text[1:-1].strip()
    return text if len(text) <= MAX_QUERY_LENGTH else ""
