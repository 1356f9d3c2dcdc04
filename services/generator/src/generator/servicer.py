"""The gRPC service of the generator: converts messages to domain types and back."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import grpc
import msgspec
from causeway.generator.v1 import generator_pb2 as pb
from causeway.generator.v1 import generator_pb2_grpc
from servicekit.batching import batched
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest
from servicekit.principal import Principal

from generator.domain import ChatMessage, Conversation, Event, OpenAIRequest, Prompt, Source
from generator.ports import Model
from generator.routing.models import Catalogue
from generator.routing.route import Route

_MAX_EVENTS = 256  # the maximum number of events in a gRPC message
_MAX_BYTES = 64 * 1024  # the approximate maximum size of a gRPC message
_EVENT_OVERHEAD = 16  # bytes
_RESERVED_PARAMETERS = ("messages", "model", "stream")  # the generator sets these members itself
_Context = grpc.aio.ServicerContext[Any, Any]

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
# These two decode all nested values, because chat templates read all members of a message.
_parts = msgspec.json.Decoder(list[Any])
_values = msgspec.json.Decoder(dict[str, Any])


class GeneratorServicer(generator_pb2_grpc.GeneratorServiceServicer):
    """Serves `causeway.generator.v1.GeneratorService`.

    Args:
        catalogue: The current models.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    async def Generate(  # noqa: N802  # the contract's name
        self,
        request: pb.GenerateRequest,
        context: _Context,
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        """Yield a model's answer in batches of events."""
        Principal.from_proto(request.principal)
        with self._catalogue.lease() as models:
            events = models.get(request.model).generate(_prompt(request), Deadline.of(context))
            batches = batched(events, _MAX_EVENTS, size=_size, max_size=_MAX_BYTES)
            async with contextlib.aclosing(batches):
                async for batch in batches:
                    yield _response(batch)

    async def CountTokens(  # noqa: N802  # the contract's name
        self,
        request: pb.CountTokensRequest,
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> pb.CountTokensResponse:
        """Return the token counts of texts and messages, and the properties of the model."""
        Principal.from_proto(request.principal)
        messages = tuple(_message(message, f"messages[{index}]") for index, message in enumerate(request.messages))
        with self._catalogue.lease() as models:
            model = models.get(request.model)
            # Read before and after the count: if the method has changed, callers must not cache the counts.
            counting = model.tokens.counting
            # In a thread, because counting megabytes or loading a tokenizer would delay all other streams.
            counts, total = await asyncio.to_thread(_count, model, request.texts, messages)
            return pb.CountTokensResponse(
                counts=counts,
                messages_count=total,
                context_window=await model.context_window(),
                exact=model.tokens.exact,
                only_quotes=model.only_quotes,
                takes_pictures=model.takes_pictures,
                calls_tools=model.calls_tools,
                counting=counting if counting == model.tokens.counting else "",
            )

    async def ListModels(  # noqa: N802  # the contract's name
        self,
        request: pb.ListModelsRequest,
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> pb.ListModelsResponse:
        """Return all models. Check concurrently whether they are ready."""
        Principal.from_proto(request.principal)
        with self._catalogue.lease() as models:
            return pb.ListModelsResponse(models=await asyncio.gather(*(_entry(model) for model in models)))


async def _entry(model: Route) -> pb.Model:
    window, created, ready = await asyncio.gather(model.context_window(), model.created(), model.ready())
    return pb.Model(
        name=model.name,
        context_window=window,
        owned_by=model.owned_by,
        created=created,
        ready=ready,
        takes_pictures=model.takes_pictures,
    )


def _count(model: Model, texts: Sequence[str], messages: Sequence[ChatMessage]) -> tuple[list[int], int]:
    counts = model.tokens.count_all(texts)
    return counts, model.tokens.count_messages(messages) if messages else 0


def _prompt(request: pb.GenerateRequest) -> Prompt:
    kind = request.WhichOneof("prompt")
    if kind == "conversation":
        return _conversation(request.conversation)
    if kind == "openai_request_json":
        _parse(_object, request.openai_request_json, "openai_request_json", "object")
        return OpenAIRequest(request.openai_request_json)
    raise InvalidRequest("The request has no prompt.", field="prompt")


def _conversation(message: pb.Conversation) -> Conversation:
    if not message.messages:
        raise InvalidRequest("The conversation has no messages.", field="conversation.messages")
    if message.plain and len(message.messages) > 1:
        raise InvalidRequest("A plain conversation must have exactly one message.", field="conversation.messages")
    parameters = message.parameters_json or b"{}"
    field = "conversation.parameters_json"
    members = _parse(_object, parameters, field, "object")
    for name in _RESERVED_PARAMETERS:
        if name in members:
            raise InvalidRequest(f"'{name}' is not allowed among the parameters.", field=f"{field}.{name}")
    return Conversation(
        messages=tuple(
            _message(chat_message, f"conversation.messages[{index}]")
            for index, chat_message in enumerate(message.messages)
        ),
        sources=tuple(_source(source) for source in message.sources),
        parameters_json=parameters,
        question=message.question,
        plain=message.plain,
        in_one_piece=message.in_one_piece,
        unary=message.unary,
    )


def _source(message: pb.Source) -> Source:
    cosine = message.dense_score if message.HasField("dense_score") else None
    return Source(message.name, message.text, message.score, cosine)


def _message(message: pb.ChatMessage, field: str) -> ChatMessage:
    if not message.role:
        raise InvalidRequest("A message must have a role.", field=f"{field}.role")
    if message.content_json:
        _parse(_parts, message.content_json, f"{field}.content_json", "array")
        if message.text:
            raise InvalidRequest("A message must not have both text and parts.", field=f"{field}.text")
    if message.extra_json:
        _parse(_values, message.extra_json, f"{field}.extra_json", "object")
    return ChatMessage(message.role, message.text, message.content_json, message.extra_json)


def _parse(decoder: "msgspec.json.Decoder[Any]", value: bytes, field: str, kind: str) -> Any:
    try:
        value.decode()  # the decoder does not check the encoding of members that it skips
        return decoder.decode(value)
    except UnicodeDecodeError:
        raise InvalidRequest(f"The value is not a JSON {kind}: it is not UTF-8.", field=field) from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The value is not a JSON {kind}: {error}.", field=field) from error


def _size(event: Event) -> int:
    # The number of characters approximates the bytes; the limit need not be exact.
    return len(event.text) + len(event.raw_json) + _EVENT_OVERHEAD


def _response(batch: list[Event]) -> pb.GenerateResponse:
    response = pb.GenerateResponse()
    add = response.events.add
    for event in batch:
        # Setting only the existing members takes half as long as passing all members to `add`.
        message = add()
        message.kind = int(event.kind)  # type: ignore[assignment]  # a test compares the numbers with the contract
        if event.choice:
            message.choice = event.choice
        if event.text:
            message.text = event.text
        if event.raw_json:
            message.raw_json = event.raw_json
        if event.usage is not None:
            message.usage.prompt_tokens = event.usage.prompt_tokens
            message.usage.completion_tokens = event.usage.completion_tokens
            message.usage.exact = event.usage.exact
    return response
