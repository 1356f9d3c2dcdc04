"""The output items of a response, in their order."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gateway.dialects.responses.citations import Citations, Files, add_files
from gateway.dialects.responses.item_cipher import COMPACTION, ItemCipher
from gateway.dialects.responses.offered_tools import Functions, OfferedTool
from gateway.dialects.responses.parts import CallItem, Events, MessageItem, ReasoningItem
from gateway.domain import Annotation, Delta, Passage, Reasoning, Refusal, ToolCall


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The optional parts of an answer.

    Attributes:
        summarises: Whether the client receives the reasoning as a summary.
        logprobs: Whether the client receives log probabilities.
        reasoning_cipher: Encrypts the reasoning for the next request, or None if the client does not request this.
    """

    summarises: bool = False
    logprobs: bool = False
    reasoning_cipher: ItemCipher | None = None


class Output:
    """All output items of an answer.

    Args:
        events: Receives the events.
        id_suffix: The id of the response without its prefix. The ids of the items contain it.
        functions: Custom tools and tools in namespaces, by the names of their functions.
        options: The optional parts of the answer.

    Attributes:
        items: The items, in order.
        results: The results of each search, by the id of its item.
    """

    def __init__(self, events: Events, id_suffix: str, functions: Functions, options: OutputOptions) -> None:
        self._events, self._id_suffix, self._functions, self._options = events, id_suffix, functions, options
        self.items: list[dict[str, Any]] = []
        self.results: dict[str, list[dict[str, Any]]] = {}
        self._files: Files = {}
        self._search: dict[str, Any] | None = None
        self._message: MessageItem | None = None
        self._reasoning: ReasoningItem | None = None
        self._calls: dict[int | None, CallItem] = {}

    def add_delta(self, delta: Delta) -> None:
        """Add the next piece of the answer.

        Raises:
            Unavailable: The model server sent data that cannot be read.
        """
        if delta.delta_json:
            for part in delta.parts:
                if type(part) is Reasoning:
                    self._add_reasoning(part.text)
                elif type(part) is Refusal:
                    self._open_message().add_refusal(part.text)
                elif type(part) is ToolCall:
                    self._add_call(part)
                elif type(part) is Annotation:
                    self._annotate(part)
        if delta.text:
            message = self._message
            (message if message is not None else self._open_message()).add_text(delta.text, delta.choice_json)

    def add_texts(self, texts: list[str]) -> None:
        """Add pieces of text without other data."""
        if pieces := [text for text in texts if text]:
            message = self._message
            (message if message is not None else self._open_message()).add_texts(pieces)

    def add_citable(self, passages: Iterable[Passage]) -> None:
        """Add passages that the text can cite."""
        add_files(self._files, passages)

    def begin_search(self) -> None:
        """Write the item and the events of a search that begins. The next call must be `end_search` or `end`."""
        self._end_reasoning("completed")
        self._end_message("completed")
        item_id = self._id("fs")
        item: dict[str, Any] = {"id": item_id, "type": "file_search_call", "queries": [], "results": None}
        item["status"] = "in_progress"
        self._search = item
        self.items.append(item)
        self._events.add("response.output_item.added", item=item, output_index=len(self.items) - 1)
        self._add_search_event("in_progress")
        self._add_search_event("searching")

    def end_search(self, query: str, results: list[dict[str, Any]], *, shows_results: bool) -> None:
        """Write the events of a search that ends.

        Args:
            query: The query, or empty if the search failed because it had no query.
            results: The results.
            shows_results: Whether the client receives the results.
        """
        item, self._search = self._search, None
        assert item is not None
        item |= {"status": "completed" if query else "failed", "queries": [query] if query else []}
        item["results"] = results if shows_results else None
        self.results[item["id"]] = results
        if query:
            self._add_search_event("completed")
        self._events.add("response.output_item.done", item=item, output_index=len(self.items) - 1)

    def add_summary(self, encrypted_content: str) -> None:
        """Write the item and the events of a summary that replaces the conversation.

        Args:
            encrypted_content: The encrypted summary.
        """
        item = {"id": self._id("cmp"), "type": COMPACTION, "encrypted_content": encrypted_content}
        at = len(self.items)
        self.items.append(item)
        self._events.add("response.output_item.added", item={**item, "encrypted_content": ""}, output_index=at)
        self._events.add("response.compaction.compacting", item_id=item["id"], output_index=at)
        self._events.add("response.output_item.done", item=item, output_index=at)

    def _add_search_event(self, state: str) -> None:
        place = {"item_id": self.items[-1]["id"], "output_index": len(self.items) - 1}
        self._events.add(f"response.file_search_call.{state}", **place)

    def end(self, status: str) -> None:
        """End the open items.

        Args:
            status: ``completed`` or ``incomplete``.
        """
        if self._search is not None:
            item, self._search = self._search, None
            item["status"] = "incomplete"
            self._events.add("response.output_item.done", item=item, output_index=len(self.items) - 1)
        self._end_reasoning(status)
        self._end_message(status)
        for call in self._calls.values():
            call.end(status)
        self._calls = {}

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._id_suffix}_{len(self.items)}"

    def _add_reasoning(self, text: str) -> None:
        if self._reasoning is None:
            self._end_message("completed")
            at = len(self.items)
            options = self._options
            self._reasoning = ReasoningItem(
                self._events, at, self._id("rs"), options.reasoning_cipher, summarises=options.summarises
            )
            self.items.append(self._reasoning.item)
        self._reasoning.add(text)

    def _open_message(self) -> MessageItem:
        self._end_reasoning("completed")
        if self._message is None:
            at = len(self.items)
            citations = Citations(self._files)
            self._message = MessageItem(
                self._events, at, self._id("msg"), citations, logprobs=self._options.logprobs
            )
            self.items.append(self._message.item)
        return self._message

    def _add_call(self, piece: ToolCall) -> None:
        call = self._calls.get(piece.index)
        if call is None:
            self._end_reasoning("completed")
            self._end_message("completed")
            tool = self._functions.get(piece.name) or OfferedTool(piece.name)
            item_id = self._id("ctc" if tool.is_custom else "fc")
            if not piece.id:
                piece = ToolCall(piece.index, f"call_{item_id}", piece.name, piece.arguments, piece.raw_json)
            call = self._calls[piece.index] = CallItem(self._events, len(self.items), item_id, piece.id, tool)
            self.items.append(call.item)
        call.add_arguments(piece.arguments)

    def _annotate(self, annotation: Annotation) -> None:
        if (
            annotation.kind != "url_citation"
            or annotation.start is None
            or annotation.end is None
            or not annotation.url
        ):
            return
        place = {"start_index": annotation.start, "end_index": annotation.end}
        self._open_message().annotate(
            {"type": annotation.kind, **place, "url": annotation.url, "title": annotation.title}
        )

    def _end_reasoning(self, status: str) -> None:
        if self._reasoning is not None:
            self._reasoning.end(status)
            self._reasoning = None

    def _end_message(self, status: str) -> None:
        if self._message is not None:
            self._message.end(status)
            self._message = None
