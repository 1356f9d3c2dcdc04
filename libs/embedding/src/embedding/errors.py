"""What can go wrong with embedding.

servicekit's tree, for callers at run time:

InvalidRequest
└── UnembeddableText        a text has no vector: empty, only white space, or no Unicode text
Unavailable                 the embedder is closed, or a server is not ready
├── Unreachable             a server cannot be reached
└── WrongVectors            a server sent something else than vectors of the configured model
RateLimited                 a server takes no more at present
DeadlineExceeded            a server did not answer in time

and a tree of its own for operators, at start-up and at build time; no client ever sees these:

SetupError
├── WeightsMissing          the distribution that carries the weights is not installed
├── WeightsMismatch         a file of it is not the original
├── CacheMissing            nothing has been built yet
└── CacheUnreadable         what was built cannot be loaded
"""

from servicekit.errors import InvalidRequest, Unavailable


class UnembeddableText(InvalidRequest, ValueError):
    """A text has no vector.

    Args:
        index: Its place among the texts of the call.
        reason: What is wrong with it, as the end of a sentence.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"Text {index} cannot be embedded: it {reason}.", field=f"texts[{index}]")
        self.index = index


class Unreachable(Unavailable):
    """A server cannot be reached, so that it said nothing of when to come back."""


class WrongVectors(Unavailable):
    """A server sent something else than was asked for, most likely because its model is not the configured one."""


class SetupError(RuntimeError):
    """The model cannot be built or loaded; the message says what to do."""


class WeightsMissing(SetupError):
    """The distribution that carries the weights is not installed, or lacks a file."""


class WeightsMismatch(SetupError):
    """A file of the distribution does not have the original's hash."""


class CacheMissing(SetupError):
    """The graph has not been built; the message names the command that builds it."""


class CacheUnreadable(SetupError):
    """The graph or the tokenizer is there, but damaged."""
