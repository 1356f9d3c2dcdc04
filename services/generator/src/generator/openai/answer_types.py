"""Checks the types of the members of a chat completion that the platform reads.

Other members may have any type. Source: the OpenAI API reference, the chat completion object.
"""

import msgspec
from msgspec import Raw

_Members = dict[str, Raw]


class _Token(msgspec.Struct, gc=False):
    top_logprobs: list[_Members] | None = None


class _Logprobs(msgspec.Struct, gc=False):
    content: list[_Token] | None = None


class _Message(msgspec.Struct, gc=False):
    tool_calls: list[_Members] | None = None


class _Choice(msgspec.Struct, gc=False):
    message: _Message | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


_completion = msgspec.json.Decoder(_Completion)
_logprobs = msgspec.json.Decoder(_Logprobs | None)


def check_completion(completion: bytes) -> None:
    """Check an answer that the server sent in one piece.

    Raises:
        ValueError: A member has a wrong type; the message has its path.
    """
    _completion.decode(completion)


def check_logprobs(logprobs: Raw) -> None:
    """Check the log probabilities of a choice.

    Raises:
        ValueError: A member has a wrong type; the message has its path.
    """
    _logprobs.decode(logprobs)
