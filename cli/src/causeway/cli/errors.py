"""What ends a command early, and the exit code that it ends with.

CommandError          1  it failed
├── UsageError        2  the command line asks for something that cannot be
├── Unreachable       3  nobody answers at the URL
├── Taken             4  the port or the data directory is another stack's
└── RequestRefused    1  the platform answered with an error
"""

from typing import ClassVar


class CommandError(Exception):
    """Base of all errors that are shown to the user as one message, without a stack."""

    exit_code: ClassVar[int] = 1


class UsageError(CommandError):
    """The command line asks for something that cannot be done."""

    exit_code = 2


class Unreachable(CommandError):
    """Nobody answers at the URL."""

    exit_code = 3


class Taken(CommandError):
    """The port or the data directory is in use."""

    exit_code = 4


class RequestRefused(CommandError):
    """The platform answered with an error.

    Args:
        message: What it said.
        status: The HTTP status; None where the error came within a stream.
        trace_id: Under which its log has the details; empty where it gave none.
    """

    def __init__(self, message: str, *, status: int | None = None, trace_id: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.trace_id = trace_id

    def __str__(self) -> str:
        """The message, with the trace id where there is one."""
        return f"{self.message} (trace {self.trace_id})" if self.trace_id else self.message
