"""The AI chat protocol, version 2024-01-28: ``/chat``, chat completions with a context.

Source: the protocol's specification, "HTTP protocol for AI chat apps (Version 2024-01-28)". It differs from the
stage before it in the roles, and has no ``/ask``.
"""

from gateway.protocols.chat_2024_01 import Chat202401


class Chat20240128(Chat202401):
    """`Dialect` of ``/chat``; the body's ``stream`` decides."""

    name = "2024-01-28"
    roles = ("assistant", "user")
