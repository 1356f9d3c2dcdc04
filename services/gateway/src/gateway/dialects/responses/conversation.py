"""The chat that is built from the items of an input."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
from servicekit import keys
from servicekit.errors import Unavailable

from gateway.answering import prompts
from gateway.dialects.json_fields import Fields
from gateway.dialects.responses.sealed import COMPACTION, Sealed
from gateway.dialects.responses.tools import Tools

Item = dict[str, Any]


class Summary(msgspec.Struct):
    """The content of a compaction item, before encryption.

    Attributes:
        text: The summary.
        whole: It was made before an answer and covers the user's messages, too.
    """

    text: str
    whole: bool = False

    def sealed(self, sealed: Sealed) -> str:
        """Return the encrypted summary.

        Raises:
            Unavailable: No key is known.
        """
        content = sealed.seal(COMPACTION, msgspec.json.encode(self).decode())
        if not content:
            raise Unavailable("Summaries cannot be encrypted at the moment. Try again shortly.", retry_after=2)
        return content


_summary = msgspec.json.Decoder(Summary)


@dataclass(slots=True)
class Conversation:
    """Messages of a chat that were made from items.

    Attributes:
        messages: The messages, as OpenAI's chat completions have them.
        paths: For each message, the path of its first item in the request; empty: the request does not have it.
        drops: Leave out items of tools that are not offered here; else refuse them.
        dropped: Kinds of the items that were left out.
        sealed: Decrypts encrypted contents; None: they are kept as they came.
        tools: Gets the tools that items bring; None: items are kept as they came.
        configuration: The latest settings of the answer that items bring.
        compacts: Its last item asks for a summary.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    drops: bool = False
    dropped: list[str] = field(default_factory=list)
    sealed: Sealed | None = None
    tools: Tools | None = None
    configuration: Item = field(default_factory=dict)
    compacts: bool = False
    _thought: str = ""
    _summary: Item | None = None

    def add(self, message: dict[str, Any], path: str) -> None:
        """Append a message; the reasoning before an answer goes with it."""
        thought, self._thought = self._thought, ""
        if thought and message["role"] == "assistant":
            message[keys.EARLIER_REASONING] = thought
        self.messages.append(message)
        self.paths.append(path)

    def think(self, text: str) -> None:
        """Take reasoning of the model, which belongs to the model's next message."""
        self._thought = f"{self._thought}\n{text}" if self._thought else text

    def compact(self, fields: Fields, path: str) -> None:
        """Replace the earlier messages by the summary of a compaction item. Instructions stay.

        Args:
            fields: The item.
            path: Its path.

        Raises:
            InvalidRequest: The item cannot be read.
        """
        if self.sealed is None:
            return
        summary = _summary.decode(self.sealed.opened(COMPACTION, fields))
        users = [message for message in self.messages if message["role"] == "user"]
        kept = users[-1:] if summary.whole else users
        kept += [each for each in self.messages if each["role"] == "system" and each is not self._summary]
        left = [each for each in zip(self.messages, self.paths, strict=True) if any(each[0] is one for one in kept)]
        self.messages[:], self.paths[:] = [message for message, _ in left], [place for _, place in left]
        self._summary = {"role": "system", "content": prompts.summary(summary.text)}
        self.add(self._summary, path)

    def call(self, call_id: str, name: str, arguments: str, path: str) -> None:
        """Append a tool call to the last message if that is an answer; else append an answer with the call."""
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        if self.messages and self.messages[-1]["role"] == "assistant" and not self._thought:
            self.messages[-1].setdefault("tool_calls", []).append(call)
        else:
            self.add({"role": "assistant", "content": None, "tool_calls": [call]}, path)
