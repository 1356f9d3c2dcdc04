"""The errors of embedding.

Errors at run time, for callers; their base classes are in `servicekit.errors`:

InvalidRequest              a server refused the texts
└── UnembeddableText        a text has no vector: empty, only white space, or not Unicode
Unavailable                 the embedder is closed, a server is not ready, or the built files of E5 cannot be loaded
├── Unreachable             a server cannot be reached, or a Triton model is not ready
└── WrongVectors            a server sent an error or an invalid response that a retry would not correct
RateLimited                 a server is busy
DeadlineExceeded            a server did not answer in time

Errors at start-up and at build time, for operators; clients never get them:

SetupError
├── WeightsMissing          the distribution with the weights is not installed, or one of its files cannot be read
├── WeightsMismatch         a file of this distribution is not the original
├── CacheMissing            the model has not been built
└── CacheUnreadable         the built files of MiniLM cannot be loaded
"""

from servicekit.errors import InvalidRequest, Unavailable


class UnembeddableText(InvalidRequest, ValueError):
    """A text has no vector.

    Args:
        index: The index of the text in the call.
        reason: The predicate of the sentence "The text …".
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"Text {index} cannot be embedded: the text {reason}.", field=f"texts[{index}]")
        self.index = index


class Unreachable(Unavailable):
    """A server cannot be reached; ``retry_after`` is the default, because the server sent no value."""


class WrongVectors(Unavailable):
    """A server sent an error or an invalid response, usually because its model is not the configured model."""


class SetupError(RuntimeError):
    """The model cannot be built or loaded; the message contains the remedy."""


class WeightsMissing(SetupError):
    """The distribution with the weights is not installed, or a required file is missing or cannot be read."""


class WeightsMismatch(SetupError):
    """A file of the distribution does not have the hash of the original."""


class CacheMissing(SetupError):
    """The graph has not been built; the message names the command that builds it."""


class CacheUnreadable(SetupError):
    """The graph or the tokenizer is damaged."""
