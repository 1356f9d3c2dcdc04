"""OpenAI's text completions. The prompt becomes one user message of a chat completion."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from servicekit.errors import CausewayError

from gateway.dialects import json_fields
from gateway.dialects.answer import Answer
from gateway.dialects.exchange import ChatRequest, Exchange
from gateway.dialects.json_fields import Fields
from gateway.dialects.openai import token_ids
from gateway.dialects.openai.chat import OpenAiChat
from gateway.dialects.openai.render import NOT_FINISHED, OpenAiExchange
from gateway.dialects.problem import problem
from gateway.domain import Batch, Completion, Delta, Finish
from gateway.domain.deltas import choices_of, index_of, members_of

# Maps the fields that errors of services name to this dialect's members.
_FIELD_NAMES = {"index": "index_name", "messages": "prompt"}
# Members that this dialect does not support, with their neutral values. The dialect refuses all other values.
_ALLOWED_VALUES: Mapping[str, tuple[Any, ...]] = {
    "suffix": (None, ""),
    "echo": (None, False),
    "best_of": (None, 1),
    "logprobs": (None,),
    "tools": (None, []),
    "functions": (None, []),
}
_encode = msgspec.json.encode


class OpenAiCompletions:
    """`Dialect` of ``POST /v1/completions``.

    Args:
        similarity_threshold: See `OpenAiChat`.
    """

    name = "openai-completions"
    media = OpenAiChat.media

    def __init__(self, similarity_threshold: float | None = None) -> None:
        self._chat = OpenAiChat(similarity_threshold, TextExchange)

    def parse(self, request: ChatRequest) -> Exchange:
        """See `Dialect`."""
        raw = json_fields.members(request.body)
        fields = json_fields.pick(raw, ("prompt", *_ALLOWED_VALUES))
        for name, allowed in _ALLOWED_VALUES.items():
            if fields.get(name) not in allowed:
                raise fields.invalid(
                    name, "is not supported, because the model receives the prompt as a chat; remove it"
                )
        messages = [{"role": "user", "content": _prompt(fields)}]
        others = {name: value for name, value in raw.items() if name != "prompt" and name not in _ALLOWED_VALUES}
        return self._chat.parse(replace(request, body=_encode(others | {"messages": messages})))

    def error(self, error: CausewayError) -> bytes:
        """See `Dialect`."""
        return problem(error, _FIELD_NAMES)


def _prompt(fields: Fields) -> str:
    """Return the text of the prompt, which may be a text, a list of token ids, or a list with one of these.

    Raises:
        InvalidRequest: The prompt is invalid, or the list has several prompts.
    """
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not token_ids.is_id(prompt[0]):
        [prompt] = prompt
    if isinstance(prompt, list) and prompt and all(map(token_ids.is_id, prompt)):
        prompt = token_ids.text_of(prompt, fields, "prompt")
    if isinstance(prompt, list) and len(prompt) > 1:
        raise fields.invalid("prompt", "must be one text; send each prompt in its own request")
    if not isinstance(prompt, str) or not prompt.strip():
        raise fields.invalid("prompt", "must be a text that is not blank")
    return prompt


class TextExchange(OpenAiExchange):
    """`Exchange` of one text completion. A choice has a text instead of a message."""

    prefix = "cmpl-"
    completion_object = chunk_object = "text_completion"
    composes_request = True

    def add_events(self, batch: Batch) -> None:
        """See `Exchange`. A model server's chat completion becomes a text completion."""
        super().add_events([_text_completion(event) if type(event) is Completion else event for event in batch])

    @staticmethod
    def _whole_chunk(event: Completion) -> bytes:
        return _text_completion(event).raw_json

    def _write_delta(self, event: Delta, out: list[bytes]) -> None:
        self._flush_finish(out)
        self._started.add(event.choice)
        if event.text:
            self._write_text(event.choice, event.text, NOT_FINISHED, out)

    def _write_finish(self, finish: Finish, out: list[bytes]) -> None:
        self._started.add(finish.choice)
        self._write_text(finish.choice, "", _encode(finish.reason or None), out)

    def _write_text(self, choice: int, text: str, finish_reason_json: bytes, out: list[bytes]) -> None:
        body = b'"choices":[{"index":%d,"text":%b,"logprobs":null,"finish_reason":%b}]' % (
            choice,
            _encode(text),
            finish_reason_json,
        )
        out.append(self._encoded_chunk(body, self._tail))

    @staticmethod
    def _choice_of(index: int, answer: Answer) -> dict[str, Any]:
        choice = answer.choices[index]
        return {
            "index": index,
            "text": choice.text,
            "logprobs": None,
            "finish_reason": choice.finish_reason or None,
        }


def _text_completion(completion: Completion) -> Completion:
    """Convert a model server's chat completion to a text completion."""
    body = members_of(completion.raw_json)
    texts = [
        {
            "index": index_of(choice, position),
            "text": _content(choice.get("message") or {}),
            "logprobs": None,
            "finish_reason": choice.get("finish_reason"),
        }
        for position, choice in enumerate(choices_of(body))
    ]
    return Completion(_encode(body | {"object": "text_completion", "choices": texts}))


def _content(message: dict[str, Any]) -> str:
    """Return the text of a message. The content may be a text or a list of parts."""
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return content if isinstance(content, str) else "".join(text for text in texts if isinstance(text, str))
