"""The errors that end a command, and its exit codes.

CommandError          1  the command failed
├── UsageError        2  the command line is invalid
├── Unreachable       3  no server answers at the URL
├── InUse             4  the port or the data directory is in use
└── RequestRefused    1  the platform returned an error
"""

from typing import ClassVar


class CommandError(Exception):
    """The base class of the errors that the command shows as one message, without a stack trace."""

    exit_code: ClassVar[int] = 1


class UsageError(CommandError):
    """The command line is invalid."""

    exit_code = 2


class Unreachable(CommandError):
    """No server answers at the URL."""

    exit_code = 3


class InUse(CommandError):
    """The port or the data directory is in use."""

    exit_code = 4


class RequestRefused(CommandError):
    """The platform returned an error.

    Args:
        message: The message of the error.
        status: The HTTP status; None for an error within a stream.
        trace_id: The id of the trace in the platform's logs; may be empty.
    """

    def __init__(self, message: str, *, status: int | None = None, trace_id: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.trace_id = trace_id

    def __str__(self) -> str:
        """Return the message, with the trace id if there is one."""
        return f"{self.message} (trace {self.trace_id})" if self.trace_id else self.message
