"""Call the generator over gRPC."""

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import grpc
from causeway.generator.v1 import generator_pb2, generator_pb2_grpc
from servicekit import rpc
from servicekit.deadline import Deadline
from servicekit.errors import UpstreamRejected
from servicekit.principal import Principal

from gateway.clients.text_counts import TextCounts
from gateway.domain import (
    Batch,
    Chunk,
    Completion,
    Delta,
    Event,
    Finish,
    Message,
    Model,
    Start,
    TokenCounts,
    Usage,
)
from gateway.ports.answering import Prompt

DESCRIPTOR = generator_pb2.DESCRIPTOR.services_by_name["GeneratorService"]

_CACHE_SECONDS = 5.0
"""Seconds for which the gateway uses the properties of a model without a new count."""


@dataclass(frozen=True, slots=True)
class _Cached:
    """The properties of a model from the generator's last token count.

    Attributes:
        counting: The name of the method that counts tokens.
        known: The properties of the model, without counts.
        until: The time until which the gateway uses the properties, on the monotonic clock.
    """

    counting: str
    known: TokenCounts
    until: float


class GrpcGenerator:
    """`ports.answering.Generator` over a channel.

    Args:
        channel: The channel to the generator.
        clock: Returns seconds of a monotonic clock.
    """

    def __init__(self, channel: grpc.aio.Channel, clock: Callable[[], float] = time.monotonic) -> None:
        self._stub = generator_pb2_grpc.GeneratorServiceStub(channel)
        self._clock = clock
        self._texts = TextCounts()
        self._cached: dict[str, _Cached] = {}

    async def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        """See `ports.answering.Generator`."""
        try:
            async with aclosing(rpc.server_stream(self._stub.Generate, _request(prompt), deadline)) as messages:
                async for message in messages:
                    # A newer generator may send unknown kinds of events, which the gateway ignores.
                    yield [_EVENTS[event.kind](event) for event in message.events if event.kind in _EVENTS]
        except UpstreamRejected as error:
            error.resource = prompt.model
            raise

    async def count_tokens(
        self,
        principal: Principal,
        model: str,
        texts: Sequence[str],
        messages: Sequence[Message],
        deadline: Deadline,
    ) -> TokenCounts:
        """See `ports.answering.Generator`."""
        cached = self._cached.get(model)
        counting = cached.counting if cached is not None else ""
        known = self._texts.known(counting, texts) if counting else [None] * len(texts)
        new = [text for text, count in zip(texts, known, strict=True) if count is None]
        response = await self._count(principal, model, new, messages, deadline)
        if len(new) < len(texts) and response.counting != counting:
            # The model now counts with another tokenizer. The cached counts are invalid.
            known, new = [None] * len(texts), list(texts)
            response = await self._count(principal, model, new, messages, deadline)
        if response.counting:
            self._texts.put(response.counting, new, response.counts)
        counted = iter(response.counts)
        counts = tuple(next(counted) if count is None else count for count in known)
        return replace(self._cached[model].known, texts=counts, messages=response.messages_count)

    async def _count(
        self,
        principal: Principal,
        model: str,
        texts: Sequence[str],
        messages: Sequence[Message],
        deadline: Deadline,
    ) -> generator_pb2.CountTokensResponse:
        request = generator_pb2.CountTokensRequest(
            principal=principal.to_proto(), model=model, texts=texts, messages=_messages(messages)
        )
        response: generator_pb2.CountTokensResponse = await rpc.unary(self._stub.CountTokens, request, deadline)
        # The number of entries is bounded, because the call fails for unknown models.
        known = TokenCounts(
            (), 0, response.context_window, response.only_quotes, response.takes_pictures, response.calls_tools
        )
        self._cached[model] = _Cached(response.counting, known, self._clock() + _CACHE_SECONDS)
        return response

    def recent_properties(self, model: str) -> TokenCounts | None:
        """See `ports.answering.Generator`."""
        cached = self._cached.get(model)
        return cached.known if cached is not None and self._clock() < cached.until else None

    async def models(self, principal: Principal, deadline: Deadline) -> tuple[Model, ...]:
        """See `ports.answering.Generator`."""
        request = generator_pb2.ListModelsRequest(principal=principal.to_proto())
        response: generator_pb2.ListModelsResponse = await rpc.unary(self._stub.ListModels, request, deadline)
        return tuple(
            Model(
                model.name, model.context_window, model.owned_by, model.created, model.ready, model.takes_pictures
            )
            for model in response.models
        )


def _request(prompt: Prompt) -> generator_pb2.GenerateRequest:
    request = generator_pb2.GenerateRequest(principal=prompt.principal.to_proto(), model=prompt.model)
    if prompt.passthrough_json:
        request.openai_request_json = prompt.passthrough_json
        return request
    request.conversation.CopyFrom(
        generator_pb2.Conversation(
            messages=_messages(prompt.messages),
            sources=[
                generator_pb2.Source(
                    name=passage.sourcepage,
                    text=passage.prompt_text,
                    score=passage.relevance,
                    dense_score=passage.dense_score,
                )
                for passage in prompt.sources
            ],
            parameters_json=prompt.parameters_json,
            question=prompt.question,
            plain=prompt.plain,
            in_one_piece=prompt.in_one_piece,
            unary=prompt.unary,
        )
    )
    return request


def _messages(messages: Iterable[Message]) -> list[generator_pb2.ChatMessage]:
    return [
        generator_pb2.ChatMessage(
            role=message.role,
            text=message.text,
            content_json=message.content_json,
            extra_json=message.extra_json,
        )
        for message in messages
    ]


# A table of functions is fast. The gateway converts an event for each token of an answer.
_EVENTS: dict[int, Callable[[generator_pb2.GenerateEvent], Event]] = {
    generator_pb2.EVENT_KIND_START: lambda event: Start(event.raw_json or b"{}"),
    generator_pb2.EVENT_KIND_TEXT: lambda event: Delta(event.choice, event.text, b"", event.raw_json),
    generator_pb2.EVENT_KIND_DELTA: lambda event: Delta(event.choice, "", event.raw_json),
    generator_pb2.EVENT_KIND_FINISH: lambda event: Finish(event.choice, event.text, event.raw_json),
    generator_pb2.EVENT_KIND_USAGE: lambda event: Usage(
        event.usage.prompt_tokens, event.usage.completion_tokens, event.raw_json
    ),
    generator_pb2.EVENT_KIND_CHUNK: lambda event: Chunk(event.raw_json),
    generator_pb2.EVENT_KIND_COMPLETION: lambda event: Completion(event.raw_json),
}
