"""Remove follow-up questions from a streamed text. Models write them after answers as ``<<question>>``."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from gateway.domain import Batch, Delta, Event, Finish, FollowUps

MAX_QUESTION_LENGTH = 400
"""The maximum number of characters of a question. Longer text between marks is no question."""

# A question is on one line and contains no marks. Some models put each mark on a separate line, repeat a mark's
# characters, or put a bullet or a number before the question.
_WORDS = rf"(?:(?!<<|>>)[^\n]){{1,{MAX_QUESTION_LENGTH}}}"
_BREAK = r"[\r\n]{1,2}"
_INDENT = r"\n[ \t]{0,8}"
_QUESTION = re.compile(
    rf"(?:{_INDENT}(?:[-*\u2022]|\d{{1,2}}[.)])[ \t]{{1,8}})?<{{2,4}}(?!<)({_WORDS}|{_BREAK}{_WORDS}{_BREAK})>>"
)
# The beginning of a question that later text may complete. A question has a bullet (optional), an opening mark,
# words and a closing mark; its beginning may end after any character.
_MARKED = rf"<{{1,4}}(?:(?<=<<)(?!<)(?:{_WORDS}>?|{_BREAK}(?:{_WORDS}(?:{_BREAK}>?)?)?))?"
_BULLETED = rf"{_INDENT}(?:\d{{1,2}}|(?:[-*\u2022]|\d{{1,2}}[.)])(?:[ \t]{{1,8}}(?:{_MARKED})?)?)?"
_BEGUN = re.compile(rf"(?:{_BULLETED}|{_MARKED})\Z")
_PLACE = re.compile(r"[<\n]")


@dataclass(slots=True)
class FollowUpSplitter:
    """Accepts a text in pieces and returns the text without its questions.

    The result does not depend on the sizes of the pieces. The splitter holds back a possible beginning of a
    question. It also holds back white space, because it removes the white space before a question. It removes the
    bullet or the number of a question, too. ``<<`` that starts no question (a shift, a quotation) remains in the
    text, except at the end: the splitter removes an unfinished question there.

    Attributes:
        questions: The questions found so far.
    """

    questions: list[str] = field(default_factory=list)
    _held: str = ""
    _space: str = ""
    _cut: bool = False
    _after_question: bool = False

    def feed(self, piece: str) -> str:
        """Add the next piece of the text and return the text that clients may receive."""
        text = self._held + piece
        self._held = ""
        out: list[str] = []
        at = 0
        while at < len(text):
            if self._after_question and text[at] == ">":
                at += 1
                continue
            self._after_question = False
            place = _PLACE.search(text, at)
            mark = place.start() if place else len(text)
            self._show(text[at:mark], out)
            at = mark
            question = _QUESTION.match(text, at)
            if question is not None:
                self._show("\n" if text[at] == "\n" else "", out)
                self._take(question[1])
                at = question.end()
            elif at < len(text) and _BEGUN.match(text, at):
                self._held = text[at:]
                break
            elif at < len(text):
                self._show(text[at], out)
                at += 1
        return "".join(out)

    def end(self) -> str:
        """Return the held text that belongs to no question."""
        held, self._held = self._held, ""
        out: list[str] = []
        if "<<" in held:
            # An unfinished question.
            self._show(held[: held.startswith("\n")], out)
            self._cut = True
        else:
            self._show(held, out)
        if not self._cut:
            out.append(self._space)
        self._space = ""
        return "".join(out)

    def _take(self, words: str) -> None:
        self._cut = self._after_question = True
        if question := words.strip():
            self.questions.append(question)

    def _show(self, text: str, out: list[str]) -> None:
        shown = text.rstrip()
        if shown:
            out += (self._space, shown)
            self._space = ""
            self._cut = False
        self._space += text[len(shown) :]


MAX_QUESTIONS = 3
_STOPPED = "content_filter"


async def split_follow_ups(batches: AsyncGenerator[Batch, None]) -> AsyncGenerator[Batch, None]:
    """Yield the events of an answer, with `FollowUps` before the end of its first choice if there are questions.

    The output detectors run after this step. They judge the text without its questions, and each question
    separately. If the model server's content filter stopped the answer, the step drops the questions.

    Args:
        batches: The model's events.
    """
    splitting = _Splitting()
    async with aclosing(batches):
        async for batch in batches:
            if out := splitting.feed(batch):
                yield out
    if out := splitting.remaining():
        yield out


class _Splitting:
    def __init__(self) -> None:
        self._splitters: dict[int, FollowUpSplitter] = {}
        self._emitted = False

    def feed(self, batch: Batch) -> list[Event]:
        """Return the events of a batch without the texts of questions."""
        out: list[Event] = []
        for event in batch:
            if isinstance(event, Delta):
                self._split(event, out)
            elif isinstance(event, Finish):
                self._end(event.choice, out)
                if event.reason == _STOPPED:
                    self._splitter(event.choice).questions.clear()
                if event.choice == 0:
                    out += self.remaining()
                out.append(event)
            else:
                out.append(event)
        return out

    def remaining(self) -> list[Event]:
        """Return the questions of the first choice that were not returned yet, without duplicates.

        Dialects with questions have one choice.
        """
        questions = () if self._emitted else tuple(dict.fromkeys(self._splitter(0).questions))[:MAX_QUESTIONS]
        self._emitted = True
        return [FollowUps(questions)] if questions else []

    def _split(self, delta: Delta, out: list[Event]) -> None:
        text = self._splitter(delta.choice).feed(delta.text) if delta.text else ""
        if text == delta.text:
            out.append(delta)
        elif text or delta.delta_json or delta.choice_json:
            out.append(msgspec.structs.replace(delta, text=text))

    def _end(self, choice: int, out: list[Event]) -> None:
        if text := self._splitter(choice).end():
            out.append(Delta(choice, text))

    def _splitter(self, choice: int) -> FollowUpSplitter:
        splitter = self._splitters.get(choice)
        if splitter is None:
            splitter = self._splitters[choice] = FollowUpSplitter()
        return splitter
