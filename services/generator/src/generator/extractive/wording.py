"""The answer as a request wants it: cut at stop strings and after so many tokens."""

from dataclasses import dataclass

import msgspec

from generator.extractive.pieces import pieces

MOST_CHOICES = 128


class Wanted(msgspec.Struct, kw_only=True):
    """The parameters that mean something to a model without chance. Others are passed over."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None

    def problem(self) -> tuple[str, str] | None:
        """The parameter that is out of range, and why; None if all are good."""
        for name in ("max_tokens", "max_completion_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                return name, f"'{name}' must be at least 1."
        if self.n is not None and not 1 <= self.n <= MOST_CHOICES:
            return "n", f"'n' must be between 1 and {MOST_CHOICES}."
        return None


@dataclass(frozen=True, slots=True)
class Worded:
    """What is said: the pieces in order, and why there are no more of them (``stop`` or ``length``)."""

    pieces: list[str]
    finish_reason: str


def worded(text: str, wanted: Wanted) -> Worded:
    """The part of an answer that is wanted."""
    stops = [wanted.stop] if isinstance(wanted.stop, str) else wanted.stop or []
    ends = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    said = pieces(text[: min(ends)] if ends else text)
    most = min((most for most in (wanted.max_tokens, wanted.max_completion_tokens) if most), default=len(said))
    return Worded(said[:most], "length" if most < len(said) else "stop")
