"""The answer to a Responses request, as one object or as a stream of events."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from servicekit.errors import CausewayError

from gateway.dialects.openai.render import source_node
from gateway.dialects.responses import moderation, record
from gateway.dialects.responses.completion import first_choice
from gateway.dialects.responses.conversation import Summary
from gateway.dialects.responses.item_cipher import ItemCipher
from gateway.dialects.responses.members import error_of, search_result, usage_of
from gateway.dialects.responses.output import Output, OutputOptions
from gateway.dialects.responses.parts import Events, encoded
from gateway.dialects.responses.request import ENCRYPTED_REASONING, CheckedRequest
from gateway.domain import (
    Batch,
    CompactionBegun,
    CompactionDone,
    Completion,
    Context,
    Delta,
    Detections,
    Done,
    Finish,
    Passage,
    SearchBegun,
    SearchDone,
    Start,
    Turn,
    Usage,
)
from gateway.domain.deltas import members_of
from gateway.domain.responses import (
    IN_PROGRESS,
    QUEUED,
    RESPONSE,
    RUNNING,
    ContinuedData,
    Stored,
    new_name,
    with_id,
)

_REASONS = {"content_filter": "content_filter", "length": "max_output_tokens"}
_encode = msgspec.json.encode


class ResponsesExchange:
    """`Exchange` of one response.

    Args:
        turn: The turn.
        checked: The request.
        continued: The stored data that the request continues.
        cipher: Encrypts contents for the client.
        streaming: Whether the answer is a stream.
        has_source_nodes: Whether the response has ``source_nodes``, because the request names an index.

    Attributes:
        background: Whether the response runs in the background, independently of the client's connection.
        response_id: The id of the response.
        store: Whether the gateway stores the response.
        headers: The headers of the answer.
        created: The creation time of the response, in seconds since 1970.
        usage: The token counts, or None if they are not known.
        compacts: Whether the answer is only a summary of the conversation.
    """

    compacts = False

    def __init__(
        self,
        turn: Turn,
        checked: CheckedRequest,
        continued: ContinuedData,
        cipher: ItemCipher,
        *,
        streaming: bool,
        has_source_nodes: bool = False,
    ) -> None:
        self.turn, self.checked, self.continued = turn, checked, continued
        self.streaming, self._cipher = streaming, cipher
        self.store = continued.store
        self.background = bool(checked.fields.get("background"))
        self.response_id = continued.name or f"{RESPONSE}_{new_name()}"
        id_suffix = self.response_id.partition("_")[2]
        self.headers = checked.headers
        self.context: Context | None = None
        self.created = continued.created or int(time.time())
        self._model = turn.answer_model
        self._events = Events(obfuscates=checked.obfuscates and not self.background)
        reasoning_cipher = cipher if ENCRYPTED_REASONING in checked.include else None
        options = OutputOptions(checked.summarises, checked.logprobs, reasoning_cipher)
        self._output = Output(self._events, id_suffix, checked.tools.functions, options)
        self._has_source_nodes = has_source_nodes
        self._source_nodes: list[dict[str, Any]] | None = None
        self._detections: list[Detections] = []
        self.usage: Usage | None = None
        self._finish_reason = ""
        self._begun = False
        self._last_logged = b""
        self._passages: list[Passage] = []

    @property
    def count(self) -> int:
        """Return the number of events so far."""
        return self._events.count

    @property
    def checked_turn(self) -> Turn | None:
        """Return the turn after the checks of the detectors; None before the checks or if a detector blocks it."""
        return None if self.context is None else self.context.checked_turn

    @property
    def has_begun(self) -> bool:
        """Return whether the first events exist."""
        return self._begun

    def begin(self) -> bytes:
        """Write the first events, and return all new events."""
        self._begin()
        return self._events.flush()

    def queued(self) -> bytes:
        """Return the response with the status ``queued``."""
        return _encode(self._object(QUEUED))

    def render(self, batch: Batch) -> bytes:
        """See `Exchange`."""
        texts: list[str] = []
        for event in batch:
            if type(event) is Delta and not (event.delta_json or event.choice_json):
                # Nearly every event is a delta with only text. The gateway writes the deltas of a batch together.
                if event.choice == 0:
                    texts.append(event.text)
                continue
            if texts:
                self._add_texts(texts)
                texts = []
            if type(event) is Delta:
                if event.choice == 0:
                    self._begin()
                    self._output.add_delta(event)
            elif type(event) is Start:
                self._model = str(members_of(event.raw_json).get("model") or self._model)
            elif type(event) is Context:
                self._take_context(event)
            elif type(event) is Finish:
                if event.choice == 0:
                    self._finish_reason = event.reason
            elif type(event) is Usage:
                self.usage = event
            elif type(event) is Detections:
                self._detections.append(event)
            elif type(event) is CompactionBegun:
                self._begin()
            elif type(event) is CompactionDone:
                summary = Summary(event.summary, whole=not event.summary_only)
                self._output.add_summary(summary.encrypted(self._cipher))
            elif type(event) is SearchBegun:
                self._begin()
                self._output.begin_search()
            elif type(event) is SearchDone:
                self._searched(event.query, event.passages)
                if self._source_nodes is not None:
                    self._source_nodes += [source_node(passage) for passage in event.passages]
            elif type(event) is Completion:
                self._add_completion(members_of(event.raw_json))
            elif type(event) is Done:
                self._end()
        if texts:
            self._add_texts(texts)
        return self._events.flush()

    def _add_texts(self, texts: list[str]) -> None:
        if not self._begun:
            self._begin()
        self._output.add_texts(texts)

    def _add_completion(self, completion: dict[str, Any]) -> None:
        """Add the first choice of an answer that the model server sent in one piece."""
        self._model = self.turn.model_alias or str(completion.get("model") or self._model)
        self._begin()
        choice = first_choice(completion)
        for delta in choice.deltas:
            self._output.add_delta(delta)
        self._finish_reason = choice.finish_reason
        self.usage = choice.usage or self.usage

    def render_failure(self, error: CausewayError) -> bytes:
        """See `Exchange`. The last two events are ``error`` and ``response.failed``."""
        self._begin()
        self._output.end("incomplete")
        self._events.add("error", **error_of(error), param=error.field)
        self._add_last(self._object("failed", error))
        return self._events.flush()

    def flush(self) -> bytes:
        """Return the events since the last call."""
        return self._events.flush()

    def logged(self, data: bytes) -> bytes:
        """Return the last bytes of a stream as the event log stores them, without findings."""
        if not self._last_logged:
            return data
        before = data.rfind(b"\n\n", 0, -2)
        return data[: before + 2 if before >= 0 else 0] + self._last_logged

    def add_events(self, batch: Batch) -> None:
        """See `Exchange`."""
        self.render(batch)

    def complete(self) -> bytes:
        """See `Exchange`."""
        return _encode(self.final())

    def final(self) -> dict[str, Any]:
        """Return the finished response."""
        reason = _REASONS.get(self._finish_reason, "")
        return self._object("incomplete" if reason else "completed", reason=reason)

    def record_begun(self, profile: str, status: str = IN_PROGRESS) -> Stored:
        """Return the stored form of a response that has not ended.

        Args:
            profile: The name of the front end.
            status: The status of the response.
        """
        return self._stored(profile, {**self._object(status), "output": []})

    def record_failed(self, profile: str, error: CausewayError) -> Stored:
        """End the open output items, and return the stored form of a response that failed.

        Args:
            profile: The name of the front end.
            error: The cause.
        """
        self._begin()
        self._output.end("incomplete")
        return self._stored(profile, self._object("failed", error))

    def record(self, profile: str) -> Stored:
        """End the open output items, and return the stored form of the finished response.

        Args:
            profile: The name of the front end.
        """
        self._begin()
        self._output.end("incomplete" if self._finish_reason in _REASONS else "completed")
        return self._stored(profile, self.final())

    def _stored(self, profile: str, response: dict[str, Any]) -> Stored:
        items = record.redacted_input(self.checked.input_items, self.checked.paths, self.turn, self.checked_turn)
        items = tuple(with_id(item, self.response_id, f"i{at}") for at, item in enumerate(items))
        output = [self._with_results(item) for item in response["output"]]
        members = record.redacted_members(self.checked.response_members, self.turn, self.checked_turn)
        response = moderation.without_findings(response | members | {"output": output})
        sources = tuple(dict.fromkeys((passage.index, passage.document_id) for passage in self._passages))
        return Stored(self.response_id, profile, response, items, self.continued.chain, sources)

    def _with_results(self, item: dict[str, Any]) -> dict[str, Any]:
        """Return an item in its stored form. A stored search always has its passages."""
        results = self._output.results.get(item["id"])
        return item if results is None else {**item, "results": results}

    def _begin(self) -> None:
        if self._begun:
            return
        self._begun = True
        if self.background:
            queued = msgspec.Raw(_encode(self._object(QUEUED)))
            self._events.add("response.created", response=queued)
            self._events.add("response.queued", response=queued)
        # The response may be large, and two events contain it. The gateway encodes it only once.
        begun = msgspec.Raw(_encode(self._object(IN_PROGRESS)))
        if not self.background:
            self._events.add("response.created", response=begun)
        self._events.add("response.in_progress", response=begun)
        self._write_search()

    def _write_search(self) -> None:
        """Write the events of the platform's search, if the platform has searched."""
        if self.checked.tools.search is not None and self.context is not None and self.context.query:
            self._output.begin_search()
            self._searched(self.context.query, self.context.passages)

    def _response_members(self) -> dict[str, Any]:
        """Return the members of the request that the response repeats.

        A stored response repeats them as the detectors changed them.
        """
        if not self.continued.store:
            return self.checked.response_members
        members = self.checked.response_members
        return members | record.redacted_members(members, self.turn, self.checked_turn)

    def _searched(self, query: str, passages: Sequence[Passage]) -> None:
        shows_results = "file_search_call.results" in self.checked.include
        results = [search_result(passage) for passage in passages]
        self._output.end_search(query, results, shows_results=shows_results)
        self._output.add_citable(passages)
        self._passages += passages

    def _take_context(self, context: Context) -> None:
        self.context = context
        self._output.add_citable(context.passages)
        self._passages += context.passages
        if self._begun:
            self._write_search()
        if self._has_source_nodes and self.turn.retrieval.indexes:
            self._source_nodes = [source_node(passage) for passage in context.passages]

    def _end(self) -> None:
        self._begin()
        self._output.end("incomplete" if self._finish_reason in _REASONS else "completed")
        self._add_last(self.final())

    def _add_last(self, final: dict[str, Any]) -> None:
        """Write the last event. The event log omits findings, which may contain text that the detectors removed."""
        kind = f"response.{final['status']}"
        if self.continued.store and (logged := moderation.without_findings(final)) != final:
            self._last_logged = encoded(kind, self._events.count, response=logged)
        self._events.add(kind, response=final)

    def _object(self, status: str, error: CausewayError | None = None, reason: str = "") -> dict[str, Any]:
        response: dict[str, Any] = {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None if error is None else error_of(error),
            "incomplete_details": {"reason": reason} if reason else None,
            "model": self._model,
            "output": self._output.items,
            **self._response_members(),
            "conversation": {"id": self.continued.conversation} if self.continued.conversation else None,
            "store": self.store,
            "usage": usage_of(self.usage),
        }
        if status == "completed":
            response["completed_at"] = int(time.time())
        if self._has_source_nodes:
            response["source_nodes"] = self._source_nodes
        if status not in RUNNING:
            response |= moderation.findings(self.checked.moderation, self.turn.detectors, self._detections)
        return response
