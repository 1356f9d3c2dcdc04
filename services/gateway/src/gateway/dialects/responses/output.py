"""The output items of a response, in their order."""

from typing import Any

from gateway.dialects.responses.citations import Citations
from gateway.dialects.responses.parts import Call, Events, Message, Thinking
from gateway.domain import Annotation, Delta, Reasoning, Refusal, ToolCall


class Output:
    """All output items of an answer.

    Args:
        events: Gets the events.
        owner: Id of the response without its prefix; the items are named after it.
        custom: Names of the custom tools.
        summarises: Reasoning is shown as a summary.
        logprobs: Log probabilities are shown.

    Attributes:
        items: The items, in order.
        citations: Finds the marks in the text.
    """

    def __init__(
        self, events: Events, owner: str, custom: frozenset[str], *, summarises: bool, logprobs: bool
    ) -> None:
        self._events, self._owner, self._custom = events, owner, custom
        self._summarises, self._logprobs = summarises, logprobs
        self.items: list[dict[str, Any]] = []
        self.citations = Citations()
        self._message: Message | None = None
        self._thinking: Thinking | None = None
        self._calls: dict[int | None, Call] = {}
        self._ended = 0

    def take(self, delta: Delta) -> None:
        """Take the next piece of the answer.

        Raises:
            Unavailable: The model server sent something that cannot be read.
        """
        if delta.delta_json:
            for part in delta.parts:
                if type(part) is Reasoning:
                    self._think(part.text)
                elif type(part) is Refusal:
                    self._speak().refuse(part.text)
                elif type(part) is ToolCall:
                    self._call(part)
                elif type(part) is Annotation:
                    self._annotate(part)
        if delta.text:
            message = self._message
            (message if message is not None else self._speak()).text(delta.text, delta.choice_json)

    def add_search(self, queries: list[str], results: list[dict[str, Any]] | None) -> None:
        """Tell of a search that is done."""
        at, item_id = len(self.items), self._id("fs")
        place = {"item_id": item_id, "output_index": at}
        item: dict[str, Any] = {"id": item_id, "type": "file_search_call", "queries": queries, "results": None}
        begun = item | {"status": "in_progress", "queries": []}
        self._events.add("response.output_item.added", item=begun, output_index=at)
        for state in ("in_progress", "searching", "completed"):
            self._events.add(f"response.file_search_call.{state}", **place)
        item |= {"status": "completed", "results": results}
        self.items.append(item)
        self._events.add("response.output_item.done", item=item, output_index=at)

    def end(self, status: str) -> None:
        """End what is still open.

        Args:
            status: ``completed`` or ``incomplete``.
        """
        self._end_thinking(status)
        self._end_message(status)
        for call in self._calls.values():
            call.end(status)
        self._calls = {}

    @property
    def text(self) -> str:
        """The text of all messages."""
        parts = (part for item in self.items if item["type"] == "message" for part in item["content"])
        return "".join(part.get("text", "") for part in parts)

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._owner}_{len(self.items)}"

    def _think(self, text: str) -> None:
        if self._thinking is None:
            self._end_message("completed")
            at = len(self.items)
            self._thinking = Thinking(self._events, at, self._id("rs"), summarises=self._summarises)
            self.items.append(self._thinking.item)
        self._thinking.think(text)

    def _speak(self) -> Message:
        self._end_thinking("completed")
        if self._message is None:
            at = len(self.items)
            self._message = Message(self._events, at, self._id("msg"), self.citations, logprobs=self._logprobs)
            self.items.append(self._message.item)
        return self._message

    def _call(self, piece: ToolCall) -> None:
        call = self._calls.get(piece.index)
        if call is None:
            self._end_thinking("completed")
            self._end_message("completed")
            custom = piece.name in self._custom
            item_id = self._id("ctc" if custom else "fc")
            if not piece.id:
                piece = ToolCall(piece.index, f"call_{item_id}", piece.name, piece.arguments, piece.raw_json)
            call = self._calls[piece.index] = Call(self._events, len(self.items), item_id, piece, custom=custom)
            self.items.append(call.item)
        call.argue(piece.arguments)

    def _annotate(self, said: Annotation) -> None:
        if said.kind != "url_citation" or said.start is None or said.end is None or not said.url:
            return
        place = {"start_index": said.start, "end_index": said.end}
        self._speak().annotate({"type": said.kind, **place, "url": said.url, "title": said.title})

    def _end_thinking(self, status: str) -> None:
        if self._thinking is not None:
            self._thinking.end(status)
            self._thinking = None

    def _end_message(self, status: str) -> None:
        if self._message is not None:
            self._message.end(status)
            self._message = None
