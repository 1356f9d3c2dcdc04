"""Growing texts under the rules of a request: what may be released, and when."""

from collections.abc import Sequence

from servicekit.errors import InvalidRequest

from guardrails.detectors.port import DetectorStream
from guardrails.domain import Action, Failure, Finding, Piece, Progress
from guardrails.policy import Rule, arranged, place, strictest, unions

_MOST_CHOICES = 128


class Session:
    """The choices of one answer while they grow, each by itself; a block ends them all.

    Args:
        rules: What they are judged by.

    Attributes:
        blocked: Whether a rule has blocked; nothing may be fed any more.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._inline_limit = min(rule.detector.inline_limit for rule in rules)
        self._choices: dict[int, _Choice] = {}
        self.blocked = False

    def feed(self, pieces: Sequence[Piece]) -> list[Progress]:
        """Takes pieces, those of one choice as one, and says what they change; nothing where nothing changes.

        Raises:
            InvalidRequest: A piece for a choice that is complete, or too many choices.
        """
        steps = []
        for piece in _joined(pieces):
            step = self._choice(piece.choice).feed(piece.text, piece.last)
            if step is None:
                continue
            steps.append(step)
            if step.action is Action.BLOCK:
                self.blocked = True
                break
        return steps

    def inline(self, pieces: Sequence[Piece]) -> bool:
        """Whether `feed` is so fast that the event loop may wait for it."""
        size = sum(len(piece.text) for piece in pieces)
        size += sum(choice.undecided for choice in self._choices.values())
        return size <= self._inline_limit

    def _choice(self, number: int) -> "_Choice":
        choice = self._choices.get(number)
        if choice is None:
            if len(self._choices) == _MOST_CHOICES:
                raise InvalidRequest(f"There are more than {_MOST_CHOICES} choices.", field="piece.choice")
            choice = self._choices[number] = _Choice(number, self._rules)
        return choice


def _joined(pieces: Sequence[Piece]) -> Sequence[Piece]:
    if len(pieces) == 1:
        return pieces
    choices: dict[int, list[Piece]] = {}
    for piece in pieces:
        of_choice = choices.setdefault(piece.choice, [])
        if of_choice and of_choice[-1].last:
            raise _complete(piece.choice)
        of_choice.append(piece)
    return [
        Piece(choice, "".join(piece.text for piece in of_choice), of_choice[-1].last)
        for choice, of_choice in choices.items()
    ]


def _complete(choice: int) -> InvalidRequest:
    return InvalidRequest(f"A piece came for choice {choice}, which was complete.", field="piece.choice")


class _Running:
    """A rule on its way through one text."""

    __slots__ = ("decided", "protects", "rule", "stream")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.stream: DetectorStream = rule.detector.stream()
        self.protects = rule.action in (Action.REDACT, Action.BLOCK)
        self.decided = 0


class _Choice:
    """One growing text.

    It is cleared up to the slowest rule that protects it; rules that only report hold nothing back. A span that is
    to be redacted is cleared as a whole or not at all. Findings are told when their end is cleared.
    """

    __slots__ = ("_cleared", "_last", "_length", "_number", "_pending", "_running")

    def __init__(self, number: int, rules: Sequence[Rule]) -> None:
        self._number = number
        self._running = [_Running(rule) for rule in rules]
        self._pending: list[Finding] = []  # found, not told yet
        self._length = 0
        self._cleared = 0
        self._last = False

    @property
    def undecided(self) -> int:
        """Code points that some rule will look at again."""
        if self._last:
            return 0
        return self._length - min((running.decided for running in self._running), default=self._length)

    def feed(self, text: str, last: bool) -> Progress | None:
        """Takes a piece; None where it changes nothing.

        Raises:
            InvalidRequest: The text was complete.
        """
        if self._last:
            raise _complete(self._number)
        self._last = last
        self._length += len(text)
        found, failures, blocked = self._run(text, last)
        if found:
            blocking = sorted((finding for finding in found if finding.action is Action.BLOCK), key=place)
            if blocking or blocked:
                return Progress(self._number, self._cleared, tuple(blocking), Action.BLOCK, failures)
            self._pending = sorted([*self._pending, *found], key=place)
        elif blocked:
            return Progress(self._number, self._cleared, (), Action.BLOCK, failures)
        before = self._cleared
        self._cleared = self._clearable()
        findings = self._told() if self._pending else ()
        if self._cleared == before and not (findings or failures or last):
            return None
        return Progress(self._number, self._cleared, findings, strictest(findings), failures)

    def _run(self, text: str, last: bool) -> tuple[list[Finding], tuple[Failure, ...], bool]:
        found: list[Finding] = []
        failures: list[Failure] = []
        blocked = False
        for running in tuple(self._running):
            try:
                running.decided, detections = running.stream.feed(text, last)
            except Exception as error:  # a detector's failure is not the request's
                failures.append(running.rule.failure(error))
                blocked = blocked or running.rule.blocks_on_error
                self._running.remove(running)
            else:
                if detections:
                    found += running.rule.findings(detections)
        return found, tuple(failures), blocked

    def _clearable(self) -> int:
        cleared = self._length
        for running in self._running:
            if running.protects and running.decided < cleared:
                cleared = running.decided
        if self._pending:
            for start, end, _ in unions(self._pending):
                if start < cleared < end:
                    return start
        return cleared

    def _told(self) -> tuple[Finding, ...]:
        ready: list[Finding] = []
        waiting: list[Finding] = []
        for finding in self._pending:
            end = finding.detection.end
            told = self._last if end is None else end <= self._cleared
            (ready if told else waiting).append(finding)
        self._pending = waiting
        return arranged(ready)
