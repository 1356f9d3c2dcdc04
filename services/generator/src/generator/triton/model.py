"""A model of a Triton Inference Server."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator

from servicekit.errors import Unavailable

from generator import openai_emulation
from generator.domain import Conversation, Event, EventKind, OpenAIRequest, Prompt, Usage
from generator.ports import TokenCounter
from generator.tokenizers.templates import load_template, plain_messages
from generator.triton.answer import Answer
from generator.triton.config import TritonConfig
from generator.triton.parameters import sampling
from generator.triton.server import TritonServer


class TritonModel:
    """A model behind Triton's gRPC streams; the first call connects.

    The server accepts one text, so messages are joined with a chat template. Content that a text cannot hold
    (pictures, tools, several choices) is refused by name. A request of the OpenAI API is answered in that API's
    format.

    Args:
        name: Its public name.
        config: Its configuration.
        tokens: Counts tokens for it.

    Raises:
        ValueError: The chat template cannot be read.
    """

    def __init__(self, name: str, config: TritonConfig, *, tokens: TokenCounter) -> None:
        self.name = name
        self.owned_by = "triton"
        self.only_quotes = False
        self.tokens = tokens
        self._config = config
        self._template = load_template(config.chat_template)
        self._server = TritonServer(config)

    async def generate(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """See the port; one TEXT event per response of the server."""
        if isinstance(prompt, OpenAIRequest):
            request = openai_emulation.parse(prompt.body)
            writer = openai_emulation.Writer(self.name, f"chatcmpl-{uuid.uuid4().hex}", int(time.time()))
            events = writer.answer(request, self._answer(request.conversation))
        else:
            events = self._answer(prompt)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event

    async def _answer(self, prompt: Conversation) -> AsyncGenerator[Event, None]:
        wanted = sampling(prompt.parameters_json, self._config.answer_tokens)
        [first, *_] = messages = plain_messages(prompt.messages)
        text = first["content"] if prompt.plain else self._template.prompt(messages)
        model = await self._server.describe()
        answer = Answer(wanted)
        responses = self._server.stream(model.tensors(text, wanted))
        async with contextlib.aclosing(responses):
            async for outputs in responses:
                piece = answer.take(outputs)
                if answer.responses == 1:
                    yield openai_emulation.start(self.name)
                if piece:
                    yield Event(EventKind.TEXT, text=piece)
                if answer.stopped:
                    break
        if not answer.responses:
            raise Unavailable("The model server ended its answer before it began.")
        if rest := answer.close():
            yield Event(EventKind.TEXT, text=rest)
        usage = await self._usage(prompt, answer)
        yield Event(EventKind.FINISH, text=answer.reason(usage.completion_tokens))
        yield Event(EventKind.USAGE, usage=usage)

    async def _usage(self, prompt: Conversation, answer: Answer) -> Usage:
        """Return the server's counts; missing ones are counted here."""
        if answer.prompt_tokens is not None and answer.answer_tokens is not None:
            return Usage(answer.prompt_tokens, answer.answer_tokens, exact=True)
        prompt_tokens, piece = await asyncio.to_thread(
            lambda: (self._count(prompt), self.tokens.count(answer.text))
        )
        return Usage(
            prompt_tokens if answer.prompt_tokens is None else answer.prompt_tokens,
            piece if answer.answer_tokens is None else answer.answer_tokens,
            exact=False,
        )

    def _count(self, prompt: Conversation) -> int:
        if prompt.plain:
            return self.tokens.count(prompt.messages[0].text)
        return self.tokens.count_messages(prompt.messages)

    async def context_window(self) -> int:
        """Return the configured window, else that of the model's configuration; 0 while it cannot be reached."""
        if self._config.window is not None:
            return self._config.window
        return await self._server.window()

    async def created(self) -> int:
        """Return 0: not known."""
        return 0

    async def ready(self) -> bool:
        """Return whether the server reports it as ready."""
        return await self._server.ready()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._server.aclose()
