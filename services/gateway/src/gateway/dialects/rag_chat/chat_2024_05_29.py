"""The AI chat protocol of 29 May 2024: camel case, files with messages, errors with a code.

Source: the protocol's TypeSpec, and its npm client.
"""

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from servicekit import errors
from servicekit.errors import CausewayError, InvalidRequest, UnsupportedMedia

from gateway.dialects import json_fields
from gateway.dialects.exchange import ChatRequest, Exchange
from gateway.dialects.rag_chat import json_files, multipart
from gateway.dialects.rag_chat.stage import LineDialect, LineExchange, encode
from gateway.domain import Delta, Message, Turn

_FORM = "multipart/form-data"
_PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TEXT_TYPES = ("application/json",)


class _Exchange(LineExchange):
    def first(self, context: dict[str, Any]) -> Any:
        return {"delta": {"role": "assistant"}, "context": context, "sessionState": self.session_state}

    def piece(self, delta: Delta) -> bytes:
        return b'{"delta":{"content":%b}}\n' % encode(delta.text)

    def last(self, context: dict[str, Any]) -> Any:
        return {"delta": {}, "context": context, "sessionState": self.session_state}

    def whole(self, text: str, context: dict[str, Any]) -> Any:
        message = {"content": text, "role": "assistant"}
        return {"message": message, "context": context, "sessionState": self.session_state}

    @staticmethod
    def error(error: CausewayError) -> bytes:
        return encode({"error": {"code": errors.row_of(error).reason.lower(), "message": error.message}})


class Chat20240529(LineDialect):
    """`Dialect` of ``{base}`` and ``{base}/stream``.

    For each file, the dialect inserts a message before the message that contains the file. The question therefore
    remains the search query. A text file becomes the text of its message. A picture becomes an ``image_url`` part,
    which the model server may refuse.
    """

    name = "2024-05-29"
    media = replace(LineDialect.media, stream=b"application/jsonl", accepts_forms=True, clients_retry=True)
    roles = ("system", "assistant", "user")
    session_state = "sessionState"
    expects_memory = True
    accepts_files = True
    exchange_type = _Exchange

    def parse(self, request: ChatRequest) -> Exchange:
        """See `Dialect`. The path selects streaming."""
        form = multipart.Form(request.body, ())
        if request.content_type.partition(";")[0].strip().lower() == _FORM:
            form = multipart.parse(request.body, request.content_type)
        files = (*form.files, *_json_files(form.json))
        attached: dict[int, list[Message]] = {}
        for file in files:
            attached.setdefault(file.message, []).append(_message(file))
        exchange = self.read(request, form.json, attached)
        _check_pictures(exchange.turn, files)
        return exchange


def _json_files(json: bytes) -> tuple[multipart.File, ...]:
    """Return the files inside the messages.

    Raises:
        InvalidRequest: A file is invalid, or there are too many; the error names the field.
    """
    body = json_fields.pick(json_fields.members(json), ("messages", "input"))
    name = "messages" if body.get("messages") is not None else "input"
    return json_files.parse(body.get(name), name)


def _message(file: multipart.File) -> Message:
    """Return the message with the content of a file.

    Raises:
        InvalidRequest: A text file is not UTF-8.
        UnsupportedMedia: The file is neither text nor a picture of a supported type.
    """
    if file.media.startswith("text/") or file.media in _TEXT_TYPES:
        try:
            text = file.content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InvalidRequest(f"{file.path} ({file.name}) is not text in UTF-8.", field=file.path) from None
        return Message("user", f"{file.name}:\n{text}")
    if file.media in _PICTURE_TYPES:
        url = f"data:{file.media};base64,{base64.b64encode(file.content).decode()}"
        parts = [{"type": "text", "text": f"{file.name}:"}, {"type": "image_url", "image_url": {"url": url}}]
        return Message("user", "", encode(parts))
    raise UnsupportedMedia(
        f"{file.path} ({file.name}) has the media type '{file.media}'. A file of a message must be text or one of "
        f"{', '.join(_PICTURE_TYPES)}. Upload other documents to an index.",
        field=file.path,
    )


def _check_pictures(turn: Turn, files: Sequence[multipart.File]) -> None:
    """Check that the input detectors can judge all files.

    Raises:
        UnsupportedMedia: The turn has input detectors, and a file is a picture.
    """
    for file in files:
        if file.media in _PICTURE_TYPES and turn.detectors.input:
            raise UnsupportedMedia(
                f"{file.path} ({file.name}) is a picture, and the input detectors cannot read pictures. Remove it.",
                field=file.path,
            )
