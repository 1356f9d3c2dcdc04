"""Builds the messages of a chat from the input items of a Responses request."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
from servicekit import keys
from servicekit.errors import Unavailable

from gateway.answering import prompts
from gateway.dialects.json_fields import Fields
from gateway.dialects.responses.item_cipher import COMPACTION, ItemCipher
from gateway.dialects.responses.tools import Tools

Item = dict[str, Any]


class Summary(msgspec.Struct):
    """The content of a compaction item, before encryption.

    Attributes:
        text: The summary.
        whole: Whether the summary also covers the user's messages. The summary that the model writes before an
            answer covers them.
    """

    text: str
    whole: bool = False

    def encrypted(self, cipher: ItemCipher) -> str:
        """Return the encrypted summary.

        Raises:
            Unavailable: The gateway has no key yet.
        """
        content = cipher.encrypt(COMPACTION, msgspec.json.encode(self).decode())
        if not content:
            raise Unavailable("Summaries cannot be encrypted at the moment. Try again shortly.", retry_after=2)
        return content


_summary = msgspec.json.Decoder(Summary)


@dataclass(slots=True)
class Conversation:
    """The messages of a chat, which are built from items.

    Attributes:
        messages: The messages in the format of OpenAI's chat completions.
        paths: For each message, the path of its first item in the request, or empty if the item is not in the
            request.
        drops_unsupported: Whether to omit items of unsupported tools. Otherwise the gateway refuses them.
        dropped: The types of the omitted items.
        cipher: Decrypts encrypted contents. With None, they remain unchanged.
        tools: Receives the tools of ``additional_tools`` items. With None, these items remain unchanged.
        configuration: The latest settings from ``configuration_update`` items.
        compacts: Whether the last item requests a summary.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    drops_unsupported: bool = False
    dropped: list[str] = field(default_factory=list)
    cipher: ItemCipher | None = None
    tools: Tools | None = None
    configuration: Item = field(default_factory=dict)
    compacts: bool = False
    _reasoning: str = ""
    _replaceable: list[dict[str, Any]] = field(default_factory=list)

    def add(self, message: dict[str, Any], path: str) -> None:
        """Append a message. A message of the assistant also receives the reasoning that precedes it."""
        reasoning, self._reasoning = self._reasoning, ""
        if reasoning and message["role"] == "assistant":
            message[keys.EARLIER_REASONING] = reasoning
        self.messages.append(message)
        self.paths.append(path)

    def add_reasoning(self, text: str) -> None:
        """Add reasoning of the model. It belongs to the model's next message."""
        self._reasoning = f"{self._reasoning}\n{text}" if self._reasoning else text

    def add_replaceable(self, text: str, path: str) -> None:
        """Append a system message that is not an instruction. The next summary replaces it."""
        message = {"role": "system", "content": text}
        self._replaceable.append(message)
        self.add(message, path)

    def compact(self, fields: Fields, path: str) -> None:
        """Replace the earlier messages with the summary of a compaction item.

        Instructions remain. The messages of the user also remain, or only the last one if the summary covers them.
        If `cipher` is None, nothing changes.

        Args:
            fields: The compaction item.
            path: The path of the item.

        Raises:
            InvalidRequest: The item cannot be decrypted.
            Unavailable: The gateway has no keys yet.
        """
        if self.cipher is None:
            return
        summary = _summary.decode(self.cipher.decrypt(COMPACTION, fields))
        remaining = [message for message in self.messages if message["role"] == "user"]
        if summary.whole:
            remaining = remaining[-1:]
        remaining += [message for message in self.messages if message["role"] == "system"]
        ids = {id(message) for message in remaining} - {id(message) for message in self._replaceable}
        pairs = [pair for pair in zip(self.messages, self.paths, strict=True) if id(pair[0]) in ids]
        self.messages[:], self.paths[:] = [message for message, _ in pairs], [path for _, path in pairs]
        self.add_replaceable(prompts.summary(summary.text), path)

    def add_call(self, call_id: str, name: str, arguments: str, path: str) -> None:
        """Append a tool call to the last message if it is the assistant's, and otherwise append a new message.

        A call that follows reasoning always gets a new message, which also receives the reasoning.
        """
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        if self.messages and self.messages[-1]["role"] == "assistant" and not self._reasoning:
            self.messages[-1].setdefault("tool_calls", []).append(call)
        else:
            self.add({"role": "assistant", "content": None, "tool_calls": [call]}, path)
