"""Follow-up questions, which models write behind their answers as ``<<question>>``: cut out as the text comes."""

import re
from dataclasses import dataclass, field

LONGEST_QUESTION = 400
"""Characters of a question; what goes on for longer is none."""

# A question stands on one line and holds no marks of its own. Some models put its marks on lines of their own, or
# more than two of them, or a bullet or a number before it.
_WORDS = rf"(?:(?!<<|>>)[^\n]){{1,{LONGEST_QUESTION}}}"
_BREAK = r"[\r\n]{1,2}"
_INDENT = r"\n[ \t]{0,8}"
_QUESTION = re.compile(
    rf"(?:{_INDENT}(?:[-*\u2022]|\d{{1,2}}[.)])[ \t]{{1,8}})?<{{2,4}}(?!<)({_WORDS}|{_BREAK}{_WORDS}{_BREAK})>>"
)
# What may still become one: a line with a bullet, a mark that begins, words, a mark that ends.
_MARKED = rf"<{{1,4}}(?:(?<=<<)(?!<)(?:{_WORDS}>?|{_BREAK}(?:{_WORDS}(?:{_BREAK}>?)?)?))?"
_BULLETED = rf"{_INDENT}(?:\d{{1,2}}|(?:[-*\u2022]|\d{{1,2}}[.)])(?:[ \t]{{1,8}}(?:{_MARKED})?)?)?"
_BEGUN = re.compile(rf"(?:{_BULLETED}|{_MARKED})\Z")
_PLACE = re.compile(r"[<\n]")


@dataclass(slots=True)
class FollowUpSplitter:
    """Takes a text in pieces, gives it back without its questions.

    However the text is cut into pieces, the same comes out. What may be the beginning of a question is held back,
    and white space, which goes with the questions that follow it where nothing else does; the bullet or the number
    of a question goes with it. ``<<`` that becomes no question (a shift, a quotation) stays in the text; only one
    that the text ends in is left out: a question that was cut short.

    Attributes:
        questions: Those that were found so far.
    """

    questions: list[str] = field(default_factory=list)
    _held: str = ""
    _space: str = ""
    _cut: bool = False
    _taken: bool = False

    def feed(self, piece: str) -> str:
        """The next piece of the text → what of it may be shown."""
        text = self._held + piece
        self._held = ""
        out: list[str] = []
        at = 0
        while at < len(text):
            if self._taken and text[at] == ">":
                at += 1
                continue
            self._taken = False
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
        """What of the text was held back and is to be shown after all."""
        held, self._held = self._held, ""
        out: list[str] = []
        if "<<" in held:
            # A question that was cut short.
            self._show(held[: held.startswith("\n")], out)
            self._cut = True
        else:
            self._show(held, out)
        if not self._cut:
            out.append(self._space)
        self._space = ""
        return "".join(out)

    def _take(self, words: str) -> None:
        self._cut = self._taken = True
        if question := words.strip():
            self.questions.append(question)

    def _show(self, text: str, out: list[str]) -> None:
        shown = text.rstrip()
        if shown:
            out += (self._space, shown)
            self._space = ""
            self._cut = False
        self._space += text[len(shown) :]
