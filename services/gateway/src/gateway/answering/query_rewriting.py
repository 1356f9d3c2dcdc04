"""What is searched for: the question, or what a model makes of it where it goes on from what was said before."""

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

LONGEST_QUERY = 400
"""Characters of a search query; what is longer is an answer, or a mistake."""

MOST_SECONDS = 10.0
SHARE_OF_TIME = 1 / 3
"""How long the model may take: so much of what is left, and no longer than `MOST_SECONDS`."""

PARAMETERS = b'{"temperature":0,"max_tokens":100}'
MOST_THOUGHT = 1000
"""Tokens of a model that thinks before it speaks; such take neither a temperature nor ``max_tokens``."""

ONLY_QUOTES = "The model only quotes its sources and makes no search queries: the question was searched for."
FAILED = "The model made no search query: the question was searched for."
UNUSABLE = "What the model made was no search query: the question was searched for."
STOPPED = "The detectors stopped the search query that the model made: the question was searched for."

_NULL = msgspec.Raw(b"null")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SAID = ("user", "assistant")
_END_OF_THOUGHT = "</think>"
_QUOTES = ('""', "''", "``", "“”", "„“", "«»")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched for, and why it is the question where it was to be another."""

    text: str
    note: str = ""


class QueryRewriting:
    """Asks the turn's own model for a search query.

    Args:
        generator: Asks models.
        checks: Judges what they say, because clients see the query.
    """

    def __init__(self, generator: Generator, checks: Checks) -> None:
        self._generator = generator
        self._checks = checks

    async def query(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> Query:
        """The query of a turn whose words the detectors have let pass.

        Whatever goes wrong here does not stop the answer: then the question itself is searched for.
        """
        wanted = turn.prompting.rewrite and turn.retrieval.indexes
        if not (wanted and any(message.role in _SAID for message in turn.history)):
            return Query(turn.query)
        with timeline.step("rewrite"):
            try:
                seconds = min(deadline.remaining() * SHARE_OF_TIME, MOST_SECONDS)
                return await self._rewritten(turn, timeline, Deadline.after(seconds))
            except CausewayError as error:
                _log.warning("the query was not rewritten", error=error.message)
                return Query(turn.query, FAILED)

    async def _rewritten(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> Query:
        known = self._generator.known(turn.model) or await self._generator.count_tokens(
            turn.principal, turn.model, (), (), deadline
        )
        if known.only_quotes:
            return Query(turn.query, ONLY_QUOTES)
        text = _cleaned(await self._said(turn, timeline, deadline))
        if not text:
            return Query(turn.query, UNUSABLE)
        if not await self._checks.clears(turn, text, timeline, deadline):
            return Query(turn.query, STOPPED)
        return Query(text)

    async def _said(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> str:
        """What the model says; empty where it was cut short or goes on for too long.

        Raises:
            CausewayError: It failed.
        """
        prompt = Prompt(
            turn.principal,
            turn.model,
            turn.query,
            prompts.for_a_query(turn),
            parameters_json=_parameters(turn),
            unary=True,
        )
        text, reason = "", ""
        async with aclosing(self._generator.generate(prompt, deadline)) as batches:
            async for batch in batches:
                timeline.heard = True
                for event in batch:
                    if isinstance(event, Delta) and event.choice == 0:
                        text += event.text
                    elif isinstance(event, Finish) and event.choice == 0:
                        reason = event.reason
                    elif isinstance(event, Usage):
                        timeline.spent("rewrite", event)
                if len(text) > prompts.LONGEST_MESSAGE:
                    return ""
        if not reason:
            raise Unavailable("The model did not end its search query.", retry_after=1)
        return text if reason == "stop" else ""


def _parameters(turn: Turn) -> bytes:
    """Short and without chance, as far as models take it: one that is asked for an effort thinks."""
    # The other members are the model server's to judge, and may hold numbers that Python has none for.
    effort = _object.decode(turn.parameters_json).get("reasoning_effort", _NULL)
    if effort == _NULL:
        return PARAMETERS
    return msgspec.json.encode({"reasoning_effort": effort, "max_completion_tokens": MOST_THOUGHT})


def _cleaned(said: str) -> str:
    """A model's words as a search query: on one line, without what it thought and without quotation marks around
    it; empty where they are none.
    """
    text = " ".join(said.rpartition(_END_OF_THOUGHT)[2].split())
    if text[:1] + text[-1:] in _QUOTES:
        text = text[1:-1].strip()
    return text if len(text) <= LONGEST_QUERY else ""
