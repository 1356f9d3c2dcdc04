"""The errors of embedding.

At run time, for callers, in servicekit's tree:

InvalidRequest
└── UnembeddableText        a text has no vector: empty, only white space, or not Unicode
Unavailable                 the embedder is closed, or a server is not ready
├── Unreachable             a server cannot be reached
└── WrongVectors            a server sent something else than vectors of the configured model
RateLimited                 a server is busy
DeadlineExceeded            a server did not answer in time

At start-up and at build time, for operators; clients never see these:

SetupError
├── WeightsMissing          the distribution with the weights is not installed
├── WeightsMismatch         a file of it is not the original
├── CacheMissing            the model has not been built
└── CacheUnreadable         the built files cannot be loaded
"""

from servicekit.errors import InvalidRequest, Unavailable


class UnembeddableText(InvalidRequest, ValueError):
    """A text has no vector.

    Args:
        index: Its index in the call.
        reason: The reason, as the end of a sentence.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"Text {index} cannot be embedded: it {reason}.", field=f"texts[{index}]")
        self.index = index


class Unreachable(Unavailable):
    """A server cannot be reached, so it gave no time for a retry."""


class WrongVectors(Unavailable):
    """A server sent an invalid answer, most likely because its model is not the configured one."""


class SetupError(RuntimeError):
    """The model cannot be built or loaded; the message says what to do."""


class WeightsMissing(SetupError):
    """The distribution with the weights is not installed, or lacks a file."""


class WeightsMismatch(SetupError):
    """A file of the distribution does not have the original's hash."""


class CacheMissing(SetupError):
    """The graph has not been built; the message names the command that builds it."""


class CacheUnreadable(SetupError):
    """The graph or the tokenizer is damaged."""
